"""The cells that are only compiled: they need no device, so that many go on at once."""

from __future__ import annotations

import queue
from collections.abc import Sequence

from kernel_matrix.attempt import Assignment, AttemptResult, absent_gpu, compile_only
from kernel_matrix.executors.events import EventKind, RunEvent
from kernel_matrix.executors.local.run_state import RunState
from kernel_matrix.plan import Cell
from kernel_matrix.results.record import Record


def compile_lanes(cells: Sequence[Cell], shared: RunState) -> list[CompileLane]:
    """As many lanes as there may be builds at once, for those of ``cells`` that are only compiled."""
    waiting: queue.SimpleQueue[Cell] = queue.SimpleQueue()
    for cell in cells:
        if cell.compile_only:
            waiting.put(cell)
    return [CompileLane(number, waiting, shared) for number in range(min(waiting.qsize(), shared.builds.workers))]


class CompileLane:
    """Takes cells from ``cells``, which several lanes share, until there are none.

    :param number: tells it from the other ones.
    """

    def __init__(self, number: int, cells: queue.SimpleQueue[Cell], shared: RunState) -> None:
        self.name = f"compile-{number}"
        self._cells = cells
        self._shared = shared

    def run(self) -> None:
        """The lane's whole life; its own thread's.

        :raises CellCancelledError: when the run was called off meanwhile.
        :raises StoreError: when a record could not be written.
        """
        while not self._shared.bench.cancelled():
            try:
                cell = self._cells.get_nowait()
            except queue.Empty:
                return
            if self._shared.orders.is_too_late(cell):
                self._shared.skip(cell, self.name)
            else:
                self._run_one(cell)

    def _run_one(self, cell: Cell) -> None:
        """One cell, with its retries, each attempt recorded."""
        shared = self._shared
        shared.tell(RunEvent(happening=EventKind.CELL_STARTED, cell=cell, lane=self.name))
        record = self._attempt(cell)
        while shared.is_tried_again(cell):
            shared.tell(RunEvent(happening=EventKind.CELL_RETRIED, cell=cell, lane=self.name, record=record))
            record = self._attempt(cell)
        shared.end(cell, self.name, record)

    def _attempt(self, cell: Cell) -> Record:
        return self._shared.attempted(cell, self.name, lambda: self._compile(cell)).record

    def _compile(self, cell: Cell) -> AttemptResult:
        shared = self._shared
        assignment = Assignment(
            cell=cell,
            gpu=absent_gpu(cell.gpu),
            image=shared.survey.images.get(cell.toolchain.name),
            attempt=shared.store.next_attempt(cell.id),
        )
        return compile_only(assignment, shared.bench)
