"""Words for the conditions cells ran under: clocks, other processes on the GPU, and quarantined GPUs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from kernel_matrix.api.run_cells import EventKind, Record, ResetState, RunEvent, RunResult
from kernel_matrix.api.wording import (
    clocks_match_policy,
    describe_clocks,
    describe_label,
    labels_worth_printing,
    warns,
)
from kernel_matrix.model.enums import ClockState
from kernel_matrix.model.messages import INTERPRETED

_UNPROVEN = "unproven"
_MOST_REASONS = 5


def conditions_line(record: Record) -> str:
    """Return for example ``[locked]`` or ``[unlocked (policy lock), low_resolution]``; empty if nothing was timed."""
    if not _was_timed(record):
        return ""
    host, words = record.host, []
    if host.clock_state != ClockState.NOT_APPLICABLE.value:
        words.append(describe_clocks(host.clock_state, host.clock_policy))
    if host.exclusive == _UNPROVEN:
        words.append(f"not proven alone: {host.exclusive_reason or 'the record does not say why'}")
    words += filter(warns, _labels(record))
    return f" [{', '.join(words)}]" if words else ""


def conditions_document(record: Record) -> dict[str, object]:
    """Return the conditions as a JSON document."""
    host = record.host
    return {
        "clock_state": host.clock_state,
        "clock_reset": host.clocks.reset if host.clocks is not None else None,
        "exclusive": host.exclusive,
        "quarantined": host.health is not None and host.health.quarantined,
    }


def complaints(event: RunEvent) -> Iterator[str]:
    """Yield errors about this machine: a quarantined GPU, or clocks that were not reset."""
    if event.happening is EventKind.GPU_QUARANTINED:
        yield f"QUARANTINED {event.lane}, nothing more runs on it in this run: {event.text}"
    if event.record is None or event.record.host.clocks is None:
        return
    clocks, gpu = event.record.host.clocks, event.record.host.device.get("uuid", "the GPU")
    if clocks.reset == ResetState.FAILED.value:
        yield f"the clocks of {gpu} were NOT given back: {clocks.reset_reason}; kernel-matrix sweep tries again"
    elif clocks.reset == ResetState.UNCONFIRMED.value:
        yield f"no reading confirms that the clocks of {gpu} were given back: {clocks.reset_reason}"


@dataclass(slots=True)
class RunConditions:
    """Conditions of a run's timed cells, counted as they end."""

    labels: list[dict[str, object]] = field(default_factory=list)
    """Labels and status of each cell."""

    clocks: Counter[str] = field(default_factory=Counter)
    """Clock state → cells."""
    not_locked: Counter[str] = field(default_factory=Counter)
    """Reason why clocks were not held although the policy wants locked ones → number of cells."""
    unproven: int = 0
    """Number of cells without proof of exclusive use of the GPU."""

    def note(self, record: Record) -> None:
        """Count one ended cell, if it was timed."""
        if not _was_timed(record):
            return
        self.labels.append({"labels": _labels(record), "status": record.outcome.status.value})
        host = record.host
        self.unproven += host.exclusive == _UNPROVEN
        if host.clock_state == ClockState.NOT_APPLICABLE.value:
            return
        self.clocks[host.clock_state] += 1
        if not clocks_match_policy(host.clock_state, host.clock_policy):
            self.not_locked[host.clock_reason] += 1

    def lines(self, result: RunResult) -> Iterator[str]:
        """Yield what a reader of the results has to know of this run."""
        for label, number in labels_worth_printing(self.labels).items():
            yield f"{label}, {number} cells: {describe_label(label)}"
        if self.clocks:
            yield f"clocks of timed cells: {', '.join(f'{number} {state}' for state, number in self.clocks.items())}"
        for reason, number in self.not_locked.most_common(_MOST_REASONS):
            yield f"  {number} wanted locked, and not: {reason}"
        if self.unproven:
            yield f"{self.unproven} cells ran on a GPU that was not proven to be theirs alone"
        for uuid, why in result.quarantined.items():
            yield f"quarantined: {uuid}: {why}"
        if result.quarantined and result.left:
            yield f"{result.left} cells are left, for want of a GPU to run them on: look at it, then run again"
        elif result.left:
            yield f"{result.left} cells are left; run again to go on"


def _labels(record: Record) -> list[str]:
    """Return the labels of its sessions and workloads, each once, without ``interpreted``: the cell's line has it."""
    found: dict[str, None] = {}
    for session in record.sessions:
        found.update(dict.fromkeys(session.labels))
        for workload in session.workloads:
            found.update(dict.fromkeys(workload.labels))
    return [label for label in found if label != INTERPRETED]


def _was_timed(record: Record) -> bool:
    return any(workload.blocks for session in record.sessions for workload in session.workloads)
