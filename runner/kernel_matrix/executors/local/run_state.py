"""State that the lanes of a run share."""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from kernel_matrix.attempt import AttemptResult, RunContext
from kernel_matrix.attempt.buildpool import BuildPool
from kernel_matrix.executors.events import EventKind, RunEvent
from kernel_matrix.executors.local.cell_queue import CellQueue
from kernel_matrix.executors.local.rerun import is_first_mismatch
from kernel_matrix.executors.local.sandbox_outage import SandboxOutage
from kernel_matrix.executors.run_policy import RunPolicy
from kernel_matrix.hosts.survey import HostSurvey
from kernel_matrix.model.enums import Fault, Status, fault_of
from kernel_matrix.plan import Cell
from kernel_matrix.results.record import Record
from kernel_matrix.results.store import RecordStore


@dataclass(slots=True)
class RunTally:
    """Progress of a run. Counts are increased only under the lock of :meth:`note`."""

    counts: Counter[Status] = field(default_factory=Counter)
    """Status → cells that ended so."""
    attempts: defaultdict[str, list[Status]] = field(default_factory=lambda: defaultdict(list))
    """Id of a cell → statuses of its attempts in this run; only the lane that has the cell changes it."""
    quarantined: dict[str, str] = field(default_factory=dict)
    """UUID → reason why nothing more runs on that GPU in this run."""
    _noting: threading.Lock = field(default_factory=threading.Lock)

    def note(self, status: Status) -> None:
        """Count a cell that ended with ``status``."""
        with self._noting:
            self.counts[status] += 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """State that the lanes of a run share."""

    survey: HostSurvey
    store: RecordStore
    policy: RunPolicy
    context: RunContext
    builds: BuildPool
    pending: CellQueue
    tally: RunTally
    outage: SandboxOutage
    tell: Callable[[RunEvent], None]
    stop: Callable[[], None]
    """Function that cancels the run."""

    def run_attempt(self, cell: Cell, lane: str, attempt: Callable[[], AttemptResult]) -> AttemptResult:
        """Record and return the result of one attempt at ``cell``, unless a sandbox outage prevented its start.

        If the sandbox was lost, this waits until it answers again.

        Raises:
            CellCancelledError: The run was cancelled.
            StoreError: The record could not be written.
            SandboxError: The sandbox has not answered for too long.
        """
        began = time.monotonic()
        ran = attempt()
        while _has_not_started(ran) and self.outage.wait_until_back(cell, began, lane):
            began = time.monotonic()
            ran = attempt()
        self.tally.attempts[cell.id].append(ran.record.outcome.status)
        self.store.save(ran.record, ran.trace)
        if ran.record.outcome.fault is Fault.INFRA:
            self.outage.wait_until_back(cell, began, lane)
        return ran

    def should_retry(self, cell: Cell) -> bool:
        """Return whether to try ``cell`` again.

        It is tried again after an infrastructure failure, up to a limit over all devices, and after its first
        contradiction between clocks, because only a contradiction that fresh processes repeat is evidence.

        Args:
            cell: A cell that this run has attempted.
        """
        attempts = self.tally.attempts[cell.id]
        if self.context.cancelled():
            return False
        if fault_of(attempts[-1]) is Fault.INFRA:
            return sum(fault_of(status) is Fault.INFRA for status in attempts) <= cell.policy.infra_retries
        return is_first_mismatch(attempts)

    def skip(self, cell: Cell, lane: str, why: str) -> None:
        """Leave ``cell`` out."""
        self.tell(RunEvent(happening=EventKind.CELL_SKIPPED, cell=cell, lane=lane, text=why))

    def end(self, cell: Cell, lane: str, record: Record) -> None:
        """Count ``cell`` as ended and report it."""
        self.tally.note(record.outcome.status)
        self.tell(RunEvent(happening=EventKind.CELL_ENDED, cell=cell, lane=lane, record=record))
        if self.policy.fail_fast and record.outcome.fault is not Fault.NONE:
            self.stop()


def _has_not_started(ran: AttemptResult) -> bool:
    """Return whether this machine failed the attempt before any measurement, and the GPU is not to blame."""
    return ran.record.outcome.status is Status.INFRA_ERROR and not ran.record.sessions and not ran.quarantine
