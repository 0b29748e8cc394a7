"""The line about local processes."""

from __future__ import annotations

from typing import Any

import pytest

from kernel_matrix.hosts.doctor.local import check
from kernel_matrix.inside import confine
from kernel_matrix.platforms.check_result import CheckResult, CheckVerdict
from kernel_matrix.sandboxes.process import Confinement
from tests.hosts.doctor.daemon import INFO
from tests.hosts.doctor.nouns import host


def line(**settings: Any) -> CheckResult:
    (finding,) = check(host(**settings))
    return finding


@pytest.mark.torch
def test_torch_of_the_runner_is_listed_with_its_confinement() -> None:
    finding = line()
    assert finding.verdict in (CheckVerdict.OK, CheckVerdict.WARN)
    assert finding.found.startswith("torch ")
    assert "confined by" in finding.found


@pytest.mark.torch
@pytest.mark.parametrize(
    ("unfiltered", "verdict", "told"),
    [
        ("", CheckVerdict.OK, "system calls are filtered"),
        ("no seccomp", CheckVerdict.WARN, "system calls are not filtered: no seccomp"),
    ],
)
def test_line_says_whether_system_calls_are_filtered(
    monkeypatch: pytest.MonkeyPatch, unfiltered: str, verdict: CheckVerdict, told: str
) -> None:
    level = Confinement(confine.ROOT, other_user=True, unfiltered=unfiltered)
    monkeypatch.setattr("kernel_matrix.sandboxes.process.ProcessSandbox.confinement", level)
    finding = line()
    assert finding.verdict is verdict
    assert told in finding.found


@pytest.mark.torch
@pytest.mark.parametrize(
    ("ungrouped", "told"),
    [("", "memory is limited by control groups"), ("read-only", "memory is summed at intervals (read-only)")],
)
def test_line_says_what_limits_memory(monkeypatch: pytest.MonkeyPatch, ungrouped: str, told: str) -> None:
    level = Confinement(confine.ROOT, other_user=True, ungrouped=ungrouped)
    monkeypatch.setattr("kernel_matrix.sandboxes.process.ProcessSandbox.confinement", level)
    assert told in line().found


@pytest.mark.parametrize(
    ("settings", "verdict"),
    [
        ({"info": INFO}, CheckVerdict.OK),
        ({}, CheckVerdict.FAIL),
        ({"info": INFO, "sandbox": "process"}, CheckVerdict.FAIL),
    ],
)
def test_its_absence_matters_where_no_container_runs_cells(
    monkeypatch: pytest.MonkeyPatch, settings: Any, verdict: CheckVerdict
) -> None:
    monkeypatch.setattr("kernel_matrix.hosts.survey.installed", lambda _name: None)
    finding = line(**settings)
    assert finding.verdict is verdict
    assert ("kernel-matrix[local]" in finding.advice) == (verdict is CheckVerdict.FAIL)


def test_nothing_is_said_where_only_containers_are_wanted() -> None:
    assert list(check(host(info=INFO, sandbox="docker"))) == []
