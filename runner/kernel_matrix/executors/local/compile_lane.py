"""Lanes for cells that are only compiled; they need no device, so several run at once."""

from __future__ import annotations

import queue

from kernel_matrix.attempt import Assignment, AttemptResult, absent_gpu, compile_only
from kernel_matrix.attempt.buildpool import leave_cores
from kernel_matrix.executors.events import EventKind, RunEvent
from kernel_matrix.executors.local.run_state import RunState
from kernel_matrix.plan import Cell
from kernel_matrix.results.record import Record

CellsToCompile = queue.SimpleQueue[Cell | None]
"""Cells that are only compiled; None ends the lane that gets it."""


class CompileLane:
    """Thread that takes cells from ``cells``, which several lanes share, until it gets None.

    Args:
        number: Number of the lane.
        cells: The common source of cells.
        shared: State of the run.
    """

    def __init__(self, number: int, cells: CellsToCompile, shared: RunState) -> None:
        self.name = f"compile-{number}"
        self._cells = cells
        self._shared = shared

    def run(self) -> None:
        """Run all cells of the lane, in its own thread.

        Raises:
            CellCancelledError: The run was cancelled.
            StoreError: A record could not be written.
        """
        leave_cores(self._shared.builds.reserved)
        while (cell := self._cells.get()) is not None and not self._shared.context.cancelled():
            if why := self._shared.policy.why_skipped(cell):
                self._shared.skip(cell, self.name, why)
            else:
                with self._shared.builds.turn_to_build():
                    self._run_one(cell)
            self._shared.builds.compiled(cell)

    def _run_one(self, cell: Cell) -> None:
        """Run one cell with its retries, and record each attempt."""
        shared = self._shared
        shared.tell(RunEvent(happening=EventKind.CELL_STARTED, cell=cell, lane=self.name))
        record = self._attempt(cell)
        while shared.should_retry(cell):
            shared.tell(RunEvent(happening=EventKind.CELL_RETRIED, cell=cell, lane=self.name, record=record))
            record = self._attempt(cell)
        shared.end(cell, self.name, record)

    def _attempt(self, cell: Cell) -> Record:
        return self._shared.run_attempt(cell, self.name, lambda: self._compile(cell)).record

    def _compile(self, cell: Cell) -> AttemptResult:
        shared = self._shared
        assignment = Assignment(
            cell=cell,
            gpu=absent_gpu(cell.gpu),
            image=shared.survey.images.get(cell.toolchain.name),
            attempt=shared.store.next_attempt(cell.id),
        )
        return compile_only(assignment, shared.context, beside_sessions=shared.builds.beside_sessions)
