"""Checks of a platform that ask records: each passes on good records, and fails where one thing is wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kernel_matrix.conformance import CheckState, ConformanceCheck
from kernel_matrix.conformance.cheats import bundled_cheats
from kernel_matrix.conformance.findings import Checks, PlatformFindings
from kernel_matrix.conformance.record_checks import (
    PROBLEMS,
    ZEROS,
    check_cheats,
    check_clocks,
    check_controls,
    check_health,
    reference_of,
)
from kernel_matrix.inside.device_measurements import DeviceMeasurements
from kernel_matrix.inside.platform import DeviceHealth
from kernel_matrix.model.enums import Role, Status
from kernel_matrix.platforms import DeviceModes, Gpu
from kernel_matrix.results.record import Record
from tests.results.factory import (
    CELL_KEY,
    CLOCKS,
    HEALTH,
    HOST,
    TELEMETRY,
    block,
    failed_record,
    make_record,
    outcome,
    session,
    workload,
)

OBSERVED = replace(CLOCKS, set_sm_mhz=None, set_memory_mhz=None, reset="not_needed")
GOOD_HOST = replace(HOST, clocks=OBSERVED, clock_policy="observe", foreign_pids=())
MEASURED = DeviceMeasurements(
    transport="cuda-vmm",
    arenas=(),
    reason="",
    cache_bytes=0,
    cold_read_ns=None,
    warm_read_ns=None,
    works=(),
    bytes_per_s=1.0,
    flops_per_s={},
    health=DeviceHealth(True, "", 1785.0, 0.03),
)
MODES = DeviceModes(mig=False, ecc=True)


def even(candidate_ns: int = 200) -> tuple[Any, ...]:
    blocks = tuple(
        block(role, index, (time_ns,) * 5)
        for index, (role, time_ns) in enumerate([(Role.CANDIDATE, candidate_ns), (Role.BASELINE, 200)] * 2)
    )
    return tuple(session(number, workloads=(workload(blocks=blocks),)) for number in range(3))


def passed(candidate: str, **changes: Any) -> Record:
    cell = replace(CELL_KEY, candidate=candidate)
    return make_record(cell=cell, **{"sessions": even(), "host": GOOD_HOST, **changes})


def failed(candidate: str, status: Status) -> Record:
    return passed(candidate, sessions=(), outcome=outcome(status, message="it was found"))


def findings(**changes: Any) -> PlatformFindings:
    """What a platform shows on which everything is as it should be."""
    references = {reference_of(problem): passed(reference_of(problem)) for problem in PROBLEMS}
    cheats = bundled_cheats()
    ended = {
        cheat.candidate: passed(cheat.candidate) if cheat.is_honest else failed(cheat.candidate, min(cheat.expect))
        for cheat in cheats
    }
    good = PlatformFindings(
        gpu=Gpu(platform="cuda", uuid="GPU-1", name="NVIDIA H200"),
        is_accelerator=True,
        cheats=cheats,
        records={**references, ZEROS: failed(ZEROS, Status.INCORRECT_VALUES), **ended},
        not_run={},
        measured=MEASURED,
        modes=(MODES, MODES),
        peak=None,
    )
    return replace(good, **changes)


def with_record(candidate: str, record: Record) -> PlatformFindings:
    good = findings()
    return replace(good, records={**good.records, candidate: record})


def not_passed(checks: Checks, found: PlatformFindings) -> dict[str, ConformanceCheck]:
    return {check.name: check for check in checks(found) if check.state is not CheckState.PASSED}


@pytest.mark.parametrize("checks", [check_controls, check_cheats, check_clocks, check_health])
def test_checks_of_a_good_platform_pass(checks: Checks) -> None:
    assert not_passed(checks, findings()) == {}
    assert list(checks(findings()))


RELU = reference_of("relu")
ON_HOST = {
    "settings_unchanged": (check_clocks, replace(GOOD_HOST, clocks=CLOCKS), "clocks were set by"),
    "kernel_and_driver_agree": (
        check_clocks,
        replace(GOOD_HOST, clocks=replace(OBSERVED, kernel_sm_mhz=1200.0)),
        "1785 MHz by the driver, 1200 MHz in a kernel",
    ),
    "healthy_after_each_cell": (
        check_health,
        replace(GOOD_HOST, health=replace(HEALTH, probe="failed", reason="a word is wrong")),
        "a word is wrong",
    ),
    "telemetry": (check_health, replace(GOOD_HOST, telemetry=replace(TELEMETRY, samples=0)), "0 samples at least"),
    "processes": (check_health, replace(GOOD_HOST, foreign_pids=(17,)), "foreign processes were seen: 17"),
}


@pytest.mark.parametrize("name", ON_HOST)
def test_check_of_a_host_with_one_fault_fails(name: str) -> None:
    checks, host, evidence = ON_HOST[name]
    found = not_passed(checks, with_record(RELU, passed(RELU, host=host)))
    assert {one: check.state for one, check in found.items()} == {name: CheckState.FAILED}
    assert evidence in found[name].evidence


@pytest.mark.parametrize(
    ("checks", "candidate", "record", "name"),
    [
        (check_controls, ZEROS, passed(ZEROS), "zeros_fail"),
        (check_controls, RELU, passed(RELU, sessions=even(candidate_ns=100)), "equal_code_is_even_relu"),
        (check_cheats, "relu/c06_zeroes_input", passed("relu/c06_zeroes_input"), "cheat_c06_zeroes_input"),
        (
            check_cheats,
            "relu/c06_zeroes_input",
            failed("relu/c06_zeroes_input", Status.INFRA_ERROR),
            "cheat_c06_zeroes_input",
        ),
        (check_cheats, "relu/control_kernel", failed("relu/control_kernel", Status.CRASHED), "honest_kernel"),
    ],
)
def test_check_of_a_wrong_ending_fails(checks: Checks, candidate: str, record: Record, name: str) -> None:
    found = not_passed(checks, with_record(candidate, record))
    assert {one: check.state for one, check in found.items()} == {name: CheckState.FAILED}


def test_check_controls_without_records_fails() -> None:
    found = not_passed(check_controls, findings(records={}))
    assert {check.state for check in found.values()} == {CheckState.FAILED}
    assert len(found) == 2 * len(PROBLEMS) + 1


def test_check_cheats_that_could_not_run_is_skipped() -> None:
    found = not_passed(check_cheats, findings(not_run={"relu/control_kernel": "Triton is not installed"}))
    assert [(check.state, check.evidence) for check in found.values()] == [
        (CheckState.SKIPPED, "Triton is not installed")
    ]


def test_check_clocks_changed_mode_fails() -> None:
    found = not_passed(check_clocks, findings(modes=(MODES, replace(MODES, ecc=False))))
    assert list(found) == ["settings_unchanged"]


def test_check_health_unproven_processes_are_skipped() -> None:
    host = replace(GOOD_HOST, exclusive="unproven", exclusive_reason="a PID namespace of its own")
    found = not_passed(check_health, with_record(RELU, passed(RELU, host=host)))
    assert [(one, check.state) for one, check in found.items()] == [("processes", CheckState.SKIPPED)]


def test_check_health_without_measurements_fails() -> None:
    found = not_passed(check_health, findings(measured="the probe died"))
    assert found["known_answers"].evidence == "the probe died"
    unchecked = replace(MEASURED, health=DeviceHealth(None, "no driver", None, 0.0))
    assert not_passed(check_health, findings(measured=unchecked))["known_answers"].state is CheckState.FAILED


def test_checks_of_a_cpu_skip_what_it_lacks() -> None:
    on_cpu = findings(is_accelerator=False)
    assert {check.state for check in check_clocks(on_cpu)} == {CheckState.SKIPPED}
    assert [check.state for check in check_health(on_cpu)] == [CheckState.PASSED, *[CheckState.SKIPPED] * 3]


def test_failed_record_has_its_reason_as_evidence() -> None:
    candidate = "relu/control_kernel"
    record = failed_record(status=Status.COMPILE_ERROR, cell=replace(CELL_KEY, candidate=candidate))
    (check,) = not_passed(check_cheats, with_record(candidate, record)).values()
    assert check.evidence.startswith("passed was expected; compile_error: expected ';'")
