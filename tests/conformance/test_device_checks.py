"""Checks of a platform that ask what was measured: each passes on good measurements, and fails on one bad one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kernel_matrix.conformance import CheckState, ConformanceCheck
from kernel_matrix.conformance.device_checks import check_memory, check_timing
from kernel_matrix.conformance.findings import Checks, PlatformFindings
from kernel_matrix.conformance.record_checks import reference_of
from kernel_matrix.inside.device_measurements import ArenaProof, TimedWork
from kernel_matrix.platforms.peaks import Peak
from tests.conformance.test_record_checks import GOOD_HOST, MEASURED, findings, passed
from tests.results.factory import HEALTH

MEASURED_H200 = replace(
    MEASURED,
    arenas=(ArenaProof(1, True, True), ArenaProof(4097, True, True)),
    cache_bytes=2048,
    cold_read_ns=12_000,
    warm_read_ns=9_000,
    works=(
        TimedWork(4, 3_000_000, 3_020_000),
        TimedWork(8, 6_010_000, 6_030_000),
        TimedWork(16, 12_000_000, 12_030_000),
    ),
    bytes_per_s=4.1e12,
    flops_per_s={"fp16": 7e14, "fp64": 6e13},
)
PEAK = Peak(source="table", reference="the data sheet", bytes_per_s=4.8e12, flops_per_s={"fp16": 9.9e14, "fp8": 2e15})
GOOD: dict[str, Any] = {
    "measured": MEASURED_H200,
    "peak": PEAK,
    "records": {reference_of("relu"): passed(reference_of("relu"))},
}


def not_passed(checks: Checks, found: PlatformFindings) -> dict[str, ConformanceCheck]:
    return {check.name: check for check in checks(found) if check.state is not CheckState.PASSED}


@pytest.mark.parametrize("checks", [check_memory, check_timing])
def test_checks_of_good_measurements_pass(checks: Checks) -> None:
    assert not_passed(checks, findings(**GOOD)) == {}


BAD: dict[str, tuple[Checks, dict[str, Any], str]] = {
    "arena_of_1_bytes": (
        check_memory,
        {"arenas": (ArenaProof(1, True, False),)},
        "a random pattern did not arrive: worker to judge",
    ),
    "arenas": (check_memory, {"arenas": (), "reason": "the worker died"}, "the worker died"),
    "flush_exceeds_cache": (check_memory, {"cache_bytes": 1 << 30}, "the cache has 1024 MiB"),
    "cold_read_is_slower": (check_memory, {"cold_read_ns": 8_000}, "8.0 µs cold, 9.0 µs warm"),
    "time_grows_with_work": (
        check_timing,
        {"works": (*MEASURED_H200.works[:2], TimedWork(16, 6_100_000, 6_110_000))},
        "16 copies in 6.100 ms",
    ),
    "timer_and_host_clock_agree": (
        check_timing,
        {"works": (*MEASURED_H200.works[:2], TimedWork(16, 12_000_000, 24_000_000))},
        "24.000 ms by the host's clock",
    ),
    "rates_within_data_sheet": (check_timing, {"bytes_per_s": 5.5e12}, "bytes 115%"),
}


@pytest.mark.parametrize("name", BAD)
def test_check_of_one_bad_measurement_fails(name: str) -> None:
    checks, changes, evidence = BAD[name]
    found = not_passed(checks, findings(**{**GOOD, "measured": replace(MEASURED_H200, **changes)}))
    assert {one: check.state for one, check in found.items()} == {name: CheckState.FAILED}
    assert evidence in found[name].evidence


def test_checks_without_measurements_fail() -> None:
    without = findings(**{**GOOD, "measured": "the probe died"})
    memory = {name: check.state for name, check in not_passed(check_memory, without).items()}
    assert memory["arenas"] is CheckState.FAILED
    assert {check.state for check in not_passed(check_timing, without).values()} == {CheckState.FAILED}


def test_check_memory_kept_after_a_cell_fails() -> None:
    kept = replace(HEALTH, memory_back=False, reason="300 MiB more than before")
    record = passed(reference_of("relu"), host=replace(GOOD_HOST, health=kept))
    (check,) = not_passed(check_memory, findings(**{**GOOD, "records": {reference_of("relu"): record}})).values()
    assert (check.name, check.state) == ("memory_back_after_each_cell", CheckState.FAILED)
    assert "300 MiB more" in check.evidence


def test_check_memory_without_a_transport_fails() -> None:
    found = not_passed(check_memory, findings(**{**GOOD, "records": {}}))
    assert found["transport"].state is CheckState.FAILED


def test_check_timing_without_a_data_sheet_is_skipped() -> None:
    (check,) = not_passed(check_timing, findings(**{**GOOD, "peak": None})).values()
    assert (check.name, check.state) == ("rates_within_data_sheet", CheckState.SKIPPED)
