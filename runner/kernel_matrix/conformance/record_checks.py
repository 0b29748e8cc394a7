"""Checks that ask the records of candidates: controls, cheats, clocks, and the health of the device."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from kernel_matrix.conformance import ConformanceCheck, decide
from kernel_matrix.conformance.cheats import Cheat
from kernel_matrix.conformance.findings import PlatformFindings
from kernel_matrix.inside.device_measurements import DeviceMeasurements
from kernel_matrix.lease import ResetState
from kernel_matrix.model.enums import ClockPolicy, Fault, Status, Verdict
from kernel_matrix.results.judged import judge, times_of
from kernel_matrix.results.record import HealthInfo, Record, record_to_json

PROBLEMS = ("relu", "softmax")
"""Problems of the package that the suite's candidates are for."""
ZEROS = "relu/torch_zeros"
"""Candidate of the package that returns zeros."""

_CLOCK_TOLERANCE = 0.05
"""Difference between the clock by the driver and by a kernel: the former is read while calls are timed, the latter
before and after, and nothing holds it."""
_NO_ACCELERATOR = "a CPU has nothing of the kind"
_LONGEST = 300
"""Characters of a reason."""


def reference_of(problem: str) -> str:
    """Return the id of a problem's reference as a candidate."""
    return f"{problem}/@reference"


def check_controls(findings: PlatformFindings) -> Iterator[ConformanceCheck]:
    """Check that references pass, zeros fail, and that equal code is neither faster nor slower."""
    for problem in PROBLEMS:
        yield _as_expected(f"reference_passes_{problem}", reference_of(problem), frozenset({Status.PASSED}), findings)
    yield _as_expected("zeros_fail", ZEROS, frozenset({Status.INCORRECT_VALUES}), findings)
    for problem in PROBLEMS:
        record = findings.records.get(reference_of(problem))
        name = f"equal_code_is_even_{problem}"
        yield decide(name, "it left no record", holds=False) if record is None else _is_even(name, record)


def check_cheats(findings: PlatformFindings) -> Iterator[ConformanceCheck]:
    """Check that each cheat ends as its file says, and that honest candidates pass."""
    for cheat in findings.cheats:
        yield _as_expected(_name(cheat), cheat.candidate, cheat.expect, findings)


def check_clocks(findings: PlatformFindings) -> Iterator[ConformanceCheck]:
    """Check that two clocks agree, and that no setting of the device was changed."""
    if not findings.is_accelerator:
        yield decide("kernel_and_driver_agree", _NO_ACCELERATOR, holds=None)
        yield decide("settings_unchanged", _NO_ACCELERATOR, holds=None)
        return
    yield _clocks_agree([one for name, one in findings.records.items() if name in map(reference_of, PROBLEMS)])
    before, after = findings.modes
    meddled = [record.stem for record in findings.records.values() if _has_set_clocks(record)]
    evidence = f"clocks were observed only, modes are as before: {after}"
    if meddled or before != after:
        evidence = f"clocks were set by {', '.join(meddled) or 'no cell'}; modes before: {before}, after: {after}"
    yield decide("settings_unchanged", evidence, holds=not meddled and before == after)


def check_health(findings: PlatformFindings) -> Iterator[ConformanceCheck]:
    """Check the health probe, telemetry and process lists."""
    measured = findings.measured
    if isinstance(measured, DeviceMeasurements):
        evidence = measured.health.reason or f"in {measured.health.seconds:.3f} s"
        yield decide("known_answers", evidence, holds=measured.health.passed is True)
    else:
        yield decide("known_answers", measured, holds=False)
    if not findings.is_accelerator:
        for name in ("healthy_after_each_cell", "telemetry", "processes"):
            yield decide(name, _NO_ACCELERATOR, holds=None)
        return
    yield _healthy(findings.records.values())
    yield _telemetry(findings.records.values())
    yield _processes(findings.records.values())


def _name(cheat: Cheat) -> str:
    return f"{'honest' if cheat.is_honest else 'cheat'}_{cheat.path.stem.removeprefix('control_')}"


def _as_expected(
    name: str, candidate: str, expected: frozenset[Status], findings: PlatformFindings
) -> ConformanceCheck:
    if candidate in findings.not_run:
        return decide(name, findings.not_run[candidate], holds=None)
    record = findings.records.get(candidate)
    if record is None:
        return decide(name, "it left no record", holds=False)
    outcome = record.outcome
    if outcome.status in expected and outcome.fault in (Fault.CANDIDATE, Fault.NONE):
        return decide(name, _ended(record), holds=True)
    wanted = " or ".join(sorted(status.value for status in expected))
    return decide(name, f"{wanted} was expected; {_ended(record)}", holds=False)


def _ended(record: Record) -> str:
    outcome = record.outcome
    why = outcome.evidence.message[:_LONGEST]
    return f"{outcome.status.value}{f': {why}' if why else ''} (record {record.stem})"


def _is_even(name: str, record: Record) -> ConformanceCheck:
    document = record_to_json(record)
    compared = [one.comparison for one in judge(document, times_of(document)).values() if one.comparison is not None]
    if not compared:
        return decide(name, f"nothing could be compared; {_ended(record)}", holds=False)
    found = compared[0]
    evidence = f"{found.verdict.value}, {found.estimate:.4f}x over {found.sessions} sessions (record {record.stem})"
    return decide(name, evidence, holds=found.verdict not in (Verdict.FASTER, Verdict.SLOWER))


def _clocks_agree(references: Sequence[Record]) -> ConformanceCheck:
    name, found = "kernel_and_driver_agree", [record.host.clocks for record in references if record.host.clocks]
    pairs = [
        (one.driver_sm_mhz, one.kernel_sm_mhz) for one in found if one.driver_sm_mhz and one.kernel_sm_mhz is not None
    ]
    if not pairs:
        return decide(name, "the driver, or a kernel, does not report a clock", holds=None)
    evidence = ", ".join(f"{driver:.0f} MHz by the driver, {inside:.0f} MHz in a kernel" for driver, inside in pairs)
    return decide(name, evidence, holds=all(abs(inside / driver - 1) <= _CLOCK_TOLERANCE for driver, inside in pairs))


def _has_set_clocks(record: Record) -> bool:
    host = record.host
    if host.clock_policy != ClockPolicy.OBSERVE.value:
        return True
    clocks = host.clocks
    return clocks is not None and (clocks.set_sm_mhz is not None or clocks.reset != ResetState.NOT_NEEDED.value)


def _healthy(records: Iterable[Record]) -> ConformanceCheck:
    found = [(record.stem, record.host.health) for record in records]
    bad = [f"{stem}: {one.reason if one else 'unknown'}" for stem, one in found if not one or _is_ill(one)]
    evidence = "; ".join(bad)[:_LONGEST] or f"the probe passed after {len(found)} cells"
    return decide("healthy_after_each_cell", evidence, holds=bool(found) and not bad)


def _is_ill(health: HealthInfo) -> bool:
    return health.quarantined or health.probe != "passed"


def _telemetry(records: Iterable[Record]) -> ConformanceCheck:
    timed = [record for record in records if record.outcome.status is Status.PASSED]
    counts = [record.host.telemetry.samples if record.host.telemetry else 0 for record in timed]
    evidence = f"{min(counts)} samples at least in each of {len(timed)} timed cells" if timed else "nothing was timed"
    return decide("telemetry", evidence, holds=bool(timed) and min(counts) > 0)


def _processes(records: Iterable[Record]) -> ConformanceCheck:
    hosts = [record.host for record in records]
    foreign = sorted({pid for host in hosts for pid in host.foreign_pids})
    if foreign:
        return decide("processes", f"foreign processes were seen: {', '.join(map(str, foreign))}", holds=False)
    unproven = [host.exclusive_reason for host in hosts if host.exclusive != "proven"]
    if unproven:
        return decide("processes", unproven[0], holds=None)
    seen = [host for host in hosts if host.telemetry and host.telemetry.own_pids]
    return decide(
        "processes", f"only processes of this program, seen in {len(seen)} of {len(hosts)} cells", holds=bool(seen)
    )
