"""``reproduce``: comparison of a record with a repetition of the same cell.

Both are checked documents (:mod:`kernel_matrix.results.reading`). The session is the unit: calls are never pooled over
sessions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Final

import numpy as np

from kernel_matrix.analysis.differences import DEFAULT_DEGREES, DEFAULT_RUN_DEVIATION, default_deviation
from kernel_matrix.analysis.relabelled_sessions import LEAST_DEVIATION
from kernel_matrix.errors import UsageError
from kernel_matrix.measure.intervals import LEVEL, deviation, exp, log_interval, t_quantile
from kernel_matrix.measure.timed import CANDIDATE, WorkloadTimes, grain_ns
from kernel_matrix.model.enums import Fault, Status, Verdict
from kernel_matrix.model.messages import INTERPRETED
from kernel_matrix.results.judged import Sessions, judge, times_of
from kernel_matrix.results.reading import Document

_CELL: Final = {
    "gpu": "GPU",
    "toolchain": "toolchain",
    "dtype": "dtype",
    "problem": "problem",
    "problem_sha256": "content of the problem",
    "candidate": "candidate",
    "candidate_sha256": "content of the candidate",
    "workloads": "workloads",
    "tier": "tier",
}
"""Keys of a record's cell → their names in messages."""
_SAME_CLOCK: Final = 0.001
"""Clocks that differ by a smaller share count as equal."""
_CLOCK_ROW: Final = "SM clock, MHz"


@dataclass(frozen=True, slots=True, kw_only=True)
class TimePair:
    """One workload's candidate time in both records, nanoseconds: geometric mean of the session medians."""

    workload: str
    was_ns: float | None
    """None if the record has no time of it."""
    is_ns: float | None
    low_ns: float | None
    """Lower bound of the expected time; None if either side has no time."""
    high_ns: float | None
    rests_on: str
    """Basis of the two bounds, in words."""
    was_verdict: str | None
    """Verdict against eager; None where nothing was compared."""
    is_verdict: str | None

    @property
    def within(self) -> bool:
        """True if the repetition lies within the expected bounds, or neither side has a time."""
        if self.is_ns is None or self.low_ns is None or self.high_ns is None:
            return self.was_ns is None and self.is_ns is None
        return self.low_ns <= self.is_ns <= self.high_ns

    @property
    def same_verdict(self) -> bool:
        """False if both verdicts are conclusive and differ."""
        conclusive = {self.was_verdict, self.is_verdict} - {None, Verdict.INCONCLUSIVE.value}
        return len(conclusive) < 2


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentPair:
    """One fact about the environment, on both sides; empty where a record does not have it."""

    name: str
    was: str
    now: str

    @property
    def same(self) -> bool:
        """True if both values are equal; clocks may differ by 0.1 %."""
        if self.name == _CLOCK_ROW and self.was and self.now:
            was, now = float(self.was), float(self.now)
            return abs(now - was) <= _SAME_CLOCK * abs(was)
        return self.was == self.now


@dataclass(frozen=True, slots=True, kw_only=True)
class Reproduction:
    """Result of comparing a record with its repetition."""

    cell_id: str
    was_status: str
    is_status: str
    times: Sequence[TimePair]
    environment: Sequence[EnvironmentPair]
    differences: Sequence[str]
    """Contradictions, one per entry; empty if reproduced."""
    notes: Sequence[str]
    """Omissions with their reasons, and cautions; whole sentences."""

    @property
    def next_step(self) -> str:
        """Advice for a cell that was not reproduced."""
        if all(one.same for one in self.environment):
            return "The recorded environment is the same: measure both again with more sessions, beside nothing else."
        return "Look at what differs in the environment first; then repeat with more sessions."

    @property
    def reproduced(self) -> bool:
        """True if status, times and verdicts agree; a different environment alone does not matter."""
        return not self.differences


def reproduction(record: Document, again: Document) -> Reproduction:
    """Compare ``again`` with ``record``: the status, each workload's time and verdict, and the environment.

    Raises:
        UsageError: They are not of the same cell, or one is an infrastructure failure.
    """
    check_same_cell(record, again)
    check_tells(record)
    check_tells(again)
    times = tuple(_times(record, again))
    return Reproduction(
        cell_id=record["cell_id"],
        was_status=record["outcome"]["status"],
        is_status=again["outcome"]["status"],
        times=times,
        environment=tuple(_environment(record, again)),
        differences=tuple(_differences(record, again, times)),
        notes=tuple(_notes(record, again)),
    )


def check_tells(record: Document) -> None:
    """Check that ``record`` holds a result.

    Raises:
        UsageError: It is an infrastructure failure.
    """
    status, fault = record["outcome"]["status"], record["outcome"]["fault"]
    if fault == Fault.INFRA.value:
        raise UsageError(
            f"record {record['cell_id']}.{record['attempt']} has no result: it is an infrastructure failure ({status})",
            next_step="Name a record with a result; `kernel-matrix run` makes one.",
        )


def check_same_cell(record: Document, again: Document) -> None:
    """Check that both records are of one cell; its id is a digest of everything that determines the result.

    Raises:
        UsageError: They are not; names the differences.
    """
    if record["cell_id"] == again["cell_id"]:
        return
    differing = [
        f"{name} ({record['cell'][key]}, {again['cell'][key]})"
        for key, name in _CELL.items()
        if record["cell"][key] != again["cell"][key]
    ]
    what = ", ".join(differing) or "the protocol, the policy or the versions of the toolchain, which records lack"
    raise UsageError(
        f"the records are of two cells; they differ in {what}",
        next_step="Compare records of one cell; two sets of results are compared by `kernel-matrix compare`.",
    )


def expected_between(
    medians: Sequence[float], repeats: int, *, level: float, grain: float = 0.0, shared: bool = False
) -> tuple[float, float]:
    """Compute the prediction interval of the geometric mean of ``repeats`` sessions of another run, in nanoseconds.

    On logarithms: x̄ ± sqrt(t² · s² · (1/n + 1/m) + t'² · 2 · r²), s the standard deviation of the record's sessions
    (Hahn, *Factors for calculating two-sided prediction intervals*, J. Am. Stat. Assoc. 64, 1969) and r that between
    runs. A single record shows nothing of r, which is
    :data:`~kernel_matrix.analysis.differences.DEFAULT_RUN_DEVIATION`, and one of a single session nothing of s, which
    is :func:`~kernel_matrix.analysis.differences.default_deviation`.

    Args:
        medians: Medians of the record's sessions, all > 0.
        repeats: Sessions of the repetition.
        level: Share of faithful repetitions that lie inside.
        grain: Tick of the device's clock as a share of the time; the interval is not narrower.
        shared: True where it ran on processor cores, which other programs use too.
    """
    logs = [math.log(one) for one in medians]
    middle, count = fmean(logs), len(logs)
    spread, degrees = float(default_deviation(np.array(math.exp(middle)), shared=shared)), DEFAULT_DEGREES
    if count > 1:
        spread, degrees = max(deviation(logs), LEAST_DEVIATION), count - 1
    of_sessions = float(t_quantile(degrees, level)) * spread * math.sqrt(1 / count + 1 / repeats)
    of_runs = float(t_quantile(DEFAULT_DEGREES, level)) * DEFAULT_RUN_DEVIATION * math.sqrt(2)
    reach = max(math.hypot(of_sessions, of_runs), math.log1p(grain))
    return exp(middle - reach), exp(middle + reach)


def _times(record: Document, again: Document) -> Iterator[TimePair]:
    read = [(one, times_of(one)) for one in (record, again)]
    compared = [{name: found.comparison for name, found in judge(one, times).items()} for one, times in read]
    timed, timed_again = (_timed(one, times) for one, times in read)
    was, now = _medians(timed), _medians(timed_again)
    names = list(dict.fromkeys((*was, *now)))
    shared = record["host"]["device"].get("uuid") is None
    # Bonferroni: the level holds for all workloads of the record together.
    level = 1 - (1 - LEVEL) / max(1, len(names))
    for name in names:
        mine, its = was.get(name, ()), now.get(name, ())
        low, high = None, None
        if mine and its:
            low, high = expected_between(mine, len(its), level=level, grain=_grain(timed, name), shared=shared)
        verdicts = [verdict.verdict.value if (verdict := one.get(name)) else None for one in compared]
        yield TimePair(
            workload=name,
            was_ns=log_interval(mine).estimate if mine else None,
            is_ns=log_interval(its).estimate if its else None,
            low_ns=low,
            high_ns=high,
            rests_on=_rests_on(len(mine), len(its)),
            was_verdict=verdicts[0],
            is_verdict=verdicts[1],
        )


def _rests_on(sessions: int, repeats: int) -> str:
    if not sessions or not repeats:
        return "no time on one side"
    between = f"{100 * DEFAULT_RUN_DEVIATION:g} % between runs"
    return f"{sessions} sessions, {between}" if sessions > 1 else f"usual noise of a single session, {between}"


def _medians(timed: Sequence[tuple[str, WorkloadTimes]]) -> dict[str, tuple[float, ...]]:
    """Collect each workload's median in every session that timed it."""
    found: dict[str, list[float]] = {}
    for name, times in timed:
        middle = times.time_ns(CANDIDATE)
        if middle:
            found.setdefault(name, []).append(middle)
    return {name: tuple(medians) for name, medians in found.items()}


def _timed(record: Document, read: Sessions) -> list[tuple[str, WorkloadTimes]]:
    """Select from ``read``, the times of ``record``, the comparable ones: those of passed, not interpreted sessions."""
    passed = record["outcome"]["status"] == Status.PASSED.value
    comparable = {s["session"] for s in record["sessions"] if passed and INTERPRETED not in s["labels"]}
    return [(name, times) for (session, name), times in read.items() if session in comparable]


def _grain(timed: Sequence[tuple[str, WorkloadTimes]], workload: str) -> float:
    claimed = [times for name, times in timed if name == workload and not times.in_batches()]
    samples = [ns for times in claimed for ns in times.device_ns(CANDIDATE)]
    middle = sorted(samples)[len(samples) // 2] if samples else 0
    return grain_ns(samples) / middle if middle else 0.0


def _differences(record: Document, again: Document, times: Sequence[TimePair]) -> Iterator[str]:
    was, now = record["outcome"]["status"], again["outcome"]["status"]
    if was != now:
        message = again["outcome"]["evidence"]["message"]
        yield f"the status was {was} and is {now}{f': {message}' if message else ''}"
        return
    for one in times:
        if not one.within:
            yield f"{one.workload}: {_time_difference(one)}"
        if not one.same_verdict:
            yield f"{one.workload}: the verdict was {one.was_verdict} and is {one.is_verdict}"


def _time_difference(one: TimePair) -> str:
    if one.was_ns is None or one.is_ns is None or one.low_ns is None or one.high_ns is None:
        return f"timed only {'in the record' if one.is_ns is None else 'now'}"
    change = 100 * (one.is_ns / one.was_ns - 1)
    return (
        f"{one.was_ns / 1e3:.4g} µs then, {one.is_ns / 1e3:.4g} µs now ({change:+.1f} %), expected"
        f" {one.low_ns / 1e3:.4g} to {one.high_ns / 1e3:.4g} µs ({one.rests_on})"
    )


def _environment(record: Document, again: Document) -> Iterator[EnvironmentPair]:
    was, now = _facts(record), _facts(again)
    for name, value in was.items():
        if value or now[name]:
            yield EnvironmentPair(name=name, was=value, now=now[name])


def _facts(record: Document) -> dict[str, str]:
    host = record["host"]
    inside: Mapping[str, Any] = next((s["environment"] for s in record["sessions"] if s["environment"] is not None), {})
    device, image, clocks = host["device"], host["image"] or {}, host.get("clocks") or {}
    facts = {
        "GPU model": device.get("name"),
        "GPU unit": device.get("uuid"),
        "driver": device.get("driver"),
        "CUDA driver": device.get("cuda_driver"),
        "clocks": host["clock_state"],
        _CLOCK_ROW: clocks.get("driver_sm_mhz") or None,
        "exclusive": host["exclusive"],
        "engine": host["engine"],
        "image": image.get("repo_digest") or image.get("id"),
        "torch": inside.get("torch"),
        "triton": inside.get("triton"),
        "CUDA": inside.get("cuda"),
        "Python": inside.get("python"),
        "artefact": (host.get("build") or {}).get("artifact_sha256"),
        "measurement version": host["measurement_version"],
        "kernel-matrix": host["version"],
        "host": host["hostname"],
        "CPU": host["cpu"],
    }
    return {name: "" if value is None else str(value) for name, value in facts.items()}


def _notes(record: Document, again: Document) -> Iterator[str]:
    both = [*record["sessions"], *again["sessions"]]
    if any(INTERPRETED in session["labels"] for session in both):
        yield "Triton ran through its interpreter: times were not compared."
    counts = [len(one["sessions"]) for one in (record, again)]
    if counts[0] != counts[1]:
        yield f"The record has {counts[0]} sessions, the repetition {counts[1]}."
    seeds = [{session["seed_sha256"] for session in one["sessions"]} for one in (record, again)]
    if seeds[0] and seeds[1]:
        yield "The seed was the same." if seeds[0] == seeds[1] else "The secret seed was drawn anew, so inputs differ."
    if record == again:
        yield "Both files hold the same attempt: nothing was repeated."
