"""What the lanes of a run share."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from runner.cell import Bench
from runner.cell.buildpool import BuildPool
from runner.core.vocab import Fault, Status
from runner.facts import Survey
from runner.plan import Cell
from runner.results.record import Record
from runner.results.store import Store
from runner.session.events import Event, Happening
from runner.session.pending import Pending


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """How a session goes about its cells."""

    run_id: str
    fail_fast: bool = False
    """Stop at the first cell that does not pass."""
    deadline: float | None = None
    """Monotonic time after which no cell is begun, and none that is expected to end later."""
    build_workers: int = 0
    """Builds at once; 0: as :func:`~runner.cell.buildpool.builds_at_once` says."""

    def is_too_late(self, cell: Cell) -> bool:
        """Whether ``cell``, begun now, is expected to end past the deadline."""
        return self.deadline is not None and time.monotonic() + cell.expected_s > self.deadline


@dataclass(slots=True)
class Tally:
    """How far a run has come. Counts go up only under the lock of :meth:`note`."""

    counts: Counter[Status] = field(default_factory=Counter)
    """Status → cells that ended so."""
    tries: Counter[str] = field(default_factory=Counter)
    """Id of a cell → attempts at it in this run; only the lane that has the cell changes it."""
    quarantined: dict[str, str] = field(default_factory=dict)
    """UUID → why nothing more runs on that GPU in this run, in words."""
    _noting: threading.Lock = field(default_factory=threading.Lock)

    def note(self, status: Status) -> None:
        """A cell has ended so."""
        with self._noting:
            self.counts[status] += 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """What the lanes of a run share."""

    survey: Survey
    store: Store
    orders: Orders
    bench: Bench
    builds: BuildPool
    pending: Pending
    tally: Tally
    tell: Callable[[Event], None]
    stop: Callable[[], None]
    """Call everything off."""

    def is_tried_again(self, cell: Cell, record: Record) -> bool:
        """Whether the machine failed ``cell``, and has not done so too often, on whatever device."""
        failed = record.outcome.fault is Fault.INFRA and not self.bench.cancelled()
        return failed and self.tally.tries[cell.id] <= cell.policy.infra_retries

    def skip(self, cell: Cell, lane: str) -> None:
        """Leave ``cell`` undone: the deadline is too near."""
        text = f"expected to take {cell.expected_s:.0f} s, which is past the deadline"
        self.tell(Event(happening=Happening.CELL_SKIPPED, cell=cell, lane=lane, text=text))

    def end(self, cell: Cell, lane: str, record: Record) -> None:
        """``cell`` has come to its end."""
        self.tally.note(record.outcome.status)
        self.tell(Event(happening=Happening.CELL_ENDED, cell=cell, lane=lane, record=record))
        if self.orders.fail_fast and record.outcome.fault is not Fault.NONE:
            self.stop()
