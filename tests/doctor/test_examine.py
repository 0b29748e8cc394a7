"""The examination itself: no check can spoil it."""

from __future__ import annotations

import importlib
import inspect
import threading
from collections.abc import Iterator

import pytest

import runner.doctor
from runner.doctor import CHECKS, bounded, examine
from runner.doctor.finding import Finding, Verdict, ok
from runner.doctor.host import Host
from runner.errors import EngineError
from tests.doctor.nouns import host


@pytest.mark.parametrize("module", CHECKS.values())
def test_each_check_says_what_is_well_and_takes_a_host(module: str) -> None:
    check = importlib.import_module(module).check
    assert inspect.getdoc(check)
    assert list(inspect.signature(check, follow_wrapped=False).parameters) in (["host"], ["_host"])


def test_findings_come_in_the_order_of_the_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner.doctor, "CHECKS", {name: CHECKS[name] for name in ("CPU governor", "Python")})
    assert [f.subject for f in examine(host())] == ["CPU governor", "Python", "NVML bindings"]


def test_a_module_that_cannot_be_imported_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    checks = {"absent": "runner.doctor.absent", "CPU governor": CHECKS["CPU governor"]}
    monkeypatch.setattr(runner.doctor, "CHECKS", checks)
    failed, well = examine(host())
    assert (failed.subject, failed.verdict) == ("absent", Verdict.FAIL)
    assert "ModuleNotFoundError" in failed.found
    assert well.subject == "CPU governor"


def test_an_unexpected_error_is_a_finding_even_halfway() -> None:
    def check(_host: Host) -> Iterator[Finding]:
        yield ok("first", "well")
        raise ZeroDivisionError("by zero")

    (finding,) = bounded("odd", check, host(), 10)
    assert (finding.subject, finding.verdict) == ("odd", Verdict.FAIL)
    assert "ZeroDivisionError: by zero" in finding.found


def test_an_error_of_ours_keeps_its_advice() -> None:
    def check(_host: Host) -> Iterator[Finding]:
        raise EngineError("the daemon is gone", next_step="start it")

    (finding,) = bounded("daemon", check, host(), 10)
    assert (finding.found, finding.advice) == ("the daemon is gone", "start it")


def test_a_check_that_hangs_is_a_finding_and_the_rest_goes_on() -> None:
    let_go = threading.Event()

    def check(_host: Host) -> list[Finding]:
        let_go.wait()
        return []

    try:
        (finding,) = bounded("driver", check, host(), 0.05)
    finally:
        let_go.set()
    assert finding.verdict is Verdict.FAIL
    assert "no answer within 0.05 s" in finding.found
