"""Stopping rule: a cell gets more sessions until its speed-up is as precise as its protocol asks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from kernel_matrix.measure.intervals import log_interval
from kernel_matrix.measure.timed import WorkloadTimes
from kernel_matrix.model.enums import Status
from kernel_matrix.model.messages import INTERPRETED, SessionReport


class StoppingRule(Protocol):
    """The part of a cell's protocol that sets the number of sessions."""

    @property
    def sessions(self) -> int:
        """Smallest number of fresh sessions."""
        ...

    @property
    def max_sessions(self) -> int:
        """Largest number of fresh sessions."""
        ...

    @property
    def session_half_width(self) -> float:
        """Wanted relative half-width of the 95 % interval of the speed-up between sessions."""
        ...


def wants_more(reports: Sequence[SessionReport], protocol: StoppingRule) -> bool:
    """Return True if the cell needs another session after those in ``reports``.

    It does while there are fewer than ``sessions``, and then, up to ``max_sessions``, while the interval of any
    workload's speed-up is wider than ``session_half_width``. It does not once a session failed, or where there is no
    speed-up to measure.
    """
    if any(report.status is not Status.PASSED for report in reports):
        return False
    if len(reports) < protocol.sessions:
        return True
    if len(reports) >= protocol.max_sessions or any(INTERPRETED in report.labels for report in reports):
        return False
    return any(
        log_interval(speedups).half_width > protocol.session_half_width for speedups in _speedups_per_workload(reports)
    )


def _speedups_per_workload(reports: Sequence[SessionReport]) -> Iterator[list[float]]:
    """Yield the speed-ups of each timed workload, one per session."""
    per_session = [{w.name: WorkloadTimes.of_report(w).speedup() for w in report.workloads} for report in reports]
    for name in dict.fromkeys(name for found in per_session for name in found):
        known = [value for found in per_session if (value := found.get(name)) is not None]
        if known:
            yield known
