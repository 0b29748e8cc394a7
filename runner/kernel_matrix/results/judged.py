"""Verdict, grade and drift of each workload, computed from all sessions of a record.

They are computed from the samples whenever needed and never stored: a record holds observations only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from kernel_matrix.measure.drift import Anchor, code_drift, machine_drift
from kernel_matrix.measure.energy import energy_ratio
from kernel_matrix.measure.grade import GradedTime, grade, spread_between, spread_within
from kernel_matrix.measure.intervals import Interval, log_interval
from kernel_matrix.measure.timed import CANDIDATE, EAGER, WorkloadTimes
from kernel_matrix.measure.verdict import SpeedupVerdict, compare_sessions
from kernel_matrix.model.enums import ClockState, Status
from kernel_matrix.model.messages import INTERPRETED
from kernel_matrix.results.reading import Document

Sessions = Mapping[tuple[int, str], WorkloadTimes]
"""(session, workload) → its times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadJudgement:
    """Results for the cold times of one workload."""

    candidate_ns: float
    """Median of the session medians."""
    eager_ns: float | None
    comparison: SpeedupVerdict | None
    """Comparison with eager; ``None`` if eager was not timed."""
    alone: Mapping[int, SpeedupVerdict | None]
    """Session → the same by this session alone."""
    graded: GradedTime
    spread_between: float | None
    machine_drift: float | None
    code_drift: float | None
    energy: Interval | None
    """Eager's energy ÷ the candidate's; None if no session has both."""


@dataclass(frozen=True, slots=True)
class _Session:
    """Times, anchors and energies of one session."""

    number: int
    times: WorkloadTimes
    median_ns: float
    anchors: list[Anchor]
    energy: Interval | None


@dataclass(frozen=True, slots=True)
class _Trust:
    """Conditions of a record that limit the grades of its times."""

    clocks_locked: bool
    pinned: bool
    alone: bool
    platform_proven: bool


def times_of(record: Document) -> Sessions:
    """Return the times of every session and workload of a checked record.

    Times in batches and claimed times are not compared, since a claimed one holds what starting a call costs. So where
    a workload was timed in batches in at least half of its sessions, its other sessions do not count, and the reverse.
    They differ, for example, where so many batches were discarded that their median has no interval.
    """
    found = {
        (session["session"], workload["name"]): WorkloadTimes.of_document(workload)
        for session in record["sessions"]
        for workload in session["workloads"]
    }
    by_workload: dict[str, list[WorkloadTimes]] = {}
    for (_session, name), times in found.items():
        by_workload.setdefault(name, []).append(times)
    for sessions in by_workload.values():
        batched = [times.in_batches() for times in sessions]
        usual = 2 * sum(batched) >= len(batched)
        for times, is_batched in zip(sessions, batched, strict=True):
            times.counts = is_batched is usual
    return found


def judge(record: Document, times: Sessions) -> dict[str, WorkloadJudgement]:
    """Return the judgement of each workload, by name; empty if the attempt did not pass or was interpreted.

    Args:
        record: A checked record.
        times: Result of :func:`times_of` for ``record``.
    """
    if record["outcome"]["status"] != Status.PASSED.value:
        return {}
    per_workload: dict[str, list[_Session]] = {}
    for session in record["sessions"]:
        for name, found in _timed(session, times).items():
            per_workload.setdefault(name, []).append(found)
    host = record["host"]
    trust = _Trust(
        clocks_locked=host["clock_state"] == ClockState.LOCKED.value,
        pinned=host.get("environment") is None,
        alone=host["exclusive"] != "unproven",
        platform_proven=host.get("platform_proven", True),
    )
    return {name: _judgement(sessions, trust) for name, sessions in per_workload.items()}


def anchors_of(session: Mapping[str, Any]) -> list[Anchor]:
    """Return the readings of the judge's own kernels in a session."""
    return [(anchor["compute_ns"], anchor["memory_ns"]) for anchor in session.get("anchors", ())]


def _timed(session: Mapping[str, Any], times: Sessions) -> dict[str, _Session]:
    if INTERPRETED in session["labels"]:
        return {}
    anchors = anchors_of(session)
    found = {}
    for workload in session["workloads"]:
        name = workload["name"]
        its_times = times[session["session"], name]
        if median_ns := its_times.time_ns(CANDIDATE):
            found[name] = _Session(session["session"], its_times, median_ns, anchors, energy_ratio(workload))
    return found


def _judgement(sessions: list[_Session], trust: _Trust) -> WorkloadJudgement:
    medians = [session.median_ns for session in sessions]
    eager = [ns for session in sessions if (ns := session.times.time_ns(EAGER))]
    between = spread_between(medians)
    energies = [session.energy.estimate for session in sessions if session.energy is not None]
    drift = machine_drift([anchor for session in sessions for anchor in session.anchors])
    alone = {session.number: compare_sessions([session.times]) for session in sessions}
    return WorkloadJudgement(
        candidate_ns=median(medians),
        eager_ns=median(eager) if eager else None,
        comparison=alone[sessions[0].number] if len(sessions) == 1 else compare_sessions([s.times for s in sessions]),
        alone=alone,
        graded=grade(
            sessions=len(sessions),
            within=_worst_within(sessions),
            between=between,
            drift=drift,
            clocks_locked=trust.clocks_locked,
            pinned=trust.pinned,
            alone=trust.alone,
            platform_proven=trust.platform_proven,
        ),
        spread_between=between,
        machine_drift=drift,
        code_drift=code_drift(medians, [session.anchors for session in sessions]),
        # What the counter's steps hide differs from session to session, so it is in their spread.
        energy=log_interval(energies) if energies else None,
    )


def _worst_within(sessions: list[_Session]) -> float | None:
    """Return the widest spread of any session; ``None`` if the spread of one is unknown."""
    spreads = [spread_within(session.times.samples_ns(CANDIDATE)) for session in sessions]
    known = [spread for spread in spreads if spread is not None]
    return max(known) if len(known) == len(spreads) else None
