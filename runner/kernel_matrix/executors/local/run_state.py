"""What the lanes of a run share."""

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
from kernel_matrix.executors.local.rerun import is_accused_once
from kernel_matrix.executors.local.sandbox_outage import SandboxOutage
from kernel_matrix.executors.run_policy import RunPolicy
from kernel_matrix.hosts.survey import HostSurvey
from kernel_matrix.model.enums import Fault, Status, fault_of
from kernel_matrix.plan import Cell
from kernel_matrix.results.record import Record
from kernel_matrix.results.store import RecordStore


@dataclass(slots=True)
class RunTally:
    """How far a run has come. Counts go up only under the lock of :meth:`note`."""

    counts: Counter[Status] = field(default_factory=Counter)
    """Status → cells that ended so."""
    attempts: defaultdict[str, list[Status]] = field(default_factory=lambda: defaultdict(list))
    """Id of a cell → how the attempts at it in this run ended; only the lane that has the cell changes it."""
    quarantined: dict[str, str] = field(default_factory=dict)
    """UUID → why nothing more runs on that GPU in this run, in words."""
    _noting: threading.Lock = field(default_factory=threading.Lock)

    def note(self, status: Status) -> None:
        """A cell has ended so."""
        with self._noting:
            self.counts[status] += 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """What the lanes of a run share."""

    survey: HostSurvey
    store: RecordStore
    orders: RunPolicy
    bench: RunContext
    builds: BuildPool
    pending: CellQueue
    tally: RunTally
    outage: SandboxOutage
    tell: Callable[[RunEvent], None]
    stop: Callable[[], None]
    """Call everything off."""

    def attempted(self, cell: Cell, lane: str, attempt: Callable[[], AttemptResult]) -> AttemptResult:
        """What comes of one attempt at ``cell``, recorded; one that the sandbox's outage kept from starting is none.

        Afterwards the sandbox is there for what follows, where this one was lost.

        Raises:
            CellCancelledError: when the run was called off meanwhile.
            StoreError: when the record could not be written.
            SandboxError: when the sandbox has not answered for too long.
        """
        began = time.monotonic()
        ran = attempt()
        while _has_not_started(ran) and self.outage.outlast(cell, began, lane):
            began = time.monotonic()
            ran = attempt()
        self.tally.attempts[cell.id].append(ran.record.outcome.status)
        self.store.save(ran.record, ran.trace)
        if ran.record.outcome.fault is Fault.INFRA:
            self.outage.outlast(cell, began, lane)
        return ran

    def is_tried_again(self, cell: Cell) -> bool:
        """Whether the machine failed ``cell``, and has not done so too often, on whatever device.

        Or whether its clocks contradict each other for the first time: what fresh processes repeat is no accident.

        :param cell: one that this run has attempted.
        """
        attempts = self.tally.attempts[cell.id]
        if self.bench.cancelled():
            return False
        if fault_of(attempts[-1]) is Fault.INFRA:
            return sum(fault_of(status) is Fault.INFRA for status in attempts) <= cell.policy.infra_retries
        return is_accused_once(attempts)

    def skip(self, cell: Cell, lane: str) -> None:
        """Leave ``cell`` undone: the deadline is too near."""
        text = f"expected to take {cell.expected_s:.0f} s, which is past the deadline"
        self.tell(RunEvent(happening=EventKind.CELL_SKIPPED, cell=cell, lane=lane, text=text))

    def end(self, cell: Cell, lane: str, record: Record) -> None:
        """``cell`` has come to its end."""
        self.tally.note(record.outcome.status)
        self.tell(RunEvent(happening=EventKind.CELL_ENDED, cell=cell, lane=lane, record=record))
        if self.orders.fail_fast and record.outcome.fault is not Fault.NONE:
            self.stop()


def _has_not_started(ran: AttemptResult) -> bool:
    """Whether this machine failed the attempt before anything was measured, and found nothing wrong with the GPU."""
    return ran.record.outcome.status is Status.INFRA_ERROR and not ran.record.sessions and not ran.quarantine
