"""The examination itself: no check can spoil it."""

from __future__ import annotations

import importlib
import inspect
import threading
from collections.abc import Iterator

import pytest

import kernel_matrix.hosts.doctor
from kernel_matrix.errors import SandboxError
from kernel_matrix.hosts.doctor import CHECKS, bounded, examine
from kernel_matrix.hosts.doctor.host import Host
from kernel_matrix.platforms.check_result import CheckResult, CheckVerdict, ok
from tests.hosts.doctor.nouns import host


@pytest.mark.parametrize("module", CHECKS.values())
def test_each_check_says_what_is_well_and_takes_a_host(module: str) -> None:
    check = importlib.import_module(module).check
    assert inspect.getdoc(check)
    assert list(inspect.signature(check, follow_wrapped=False).parameters) in (["host"], ["_host"])


def test_findings_come_in_the_order_of_the_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        kernel_matrix.hosts.doctor, "CHECKS", {name: CHECKS[name] for name in ("CPU governor", "Python")}
    )
    assert [f.subject for f in examine(host())] == ["CPU governor", "Python"]


def test_a_module_that_cannot_be_imported_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    checks = {"absent": "kernel_matrix.hosts.doctor.absent", "CPU governor": CHECKS["CPU governor"]}
    monkeypatch.setattr(kernel_matrix.hosts.doctor, "CHECKS", checks)
    failed, well = examine(host())
    assert (failed.subject, failed.verdict) == ("absent", CheckVerdict.FAIL)
    assert "ModuleNotFoundError" in failed.found
    assert well.subject == "CPU governor"


def test_an_unexpected_error_is_a_finding_even_halfway() -> None:
    def check(_host: Host) -> Iterator[CheckResult]:
        yield ok("first", "well")
        raise ZeroDivisionError("by zero")

    (finding,) = bounded("odd", check, host(), 10)
    assert (finding.subject, finding.verdict) == ("odd", CheckVerdict.FAIL)
    assert "ZeroDivisionError: by zero" in finding.found


def test_an_error_of_ours_keeps_its_advice() -> None:
    def check(_host: Host) -> Iterator[CheckResult]:
        raise SandboxError("the daemon is gone", next_step="start it")

    (finding,) = bounded("daemon", check, host(), 10)
    assert (finding.found, finding.advice) == ("the daemon is gone", "start it")


def test_a_check_that_hangs_is_a_finding_and_the_rest_goes_on() -> None:
    let_go = threading.Event()

    def check(_host: Host) -> list[CheckResult]:
        let_go.wait()
        return []

    try:
        (finding,) = bounded("driver", check, host(), 0.05)
    finally:
        let_go.set()
    assert finding.verdict is CheckVerdict.FAIL
    assert "no answer within 0.05 s" in finding.found
