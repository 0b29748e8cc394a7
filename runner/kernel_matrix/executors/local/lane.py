"""Lane that runs the cells of one device, one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from functools import partial

from kernel_matrix.attempt import DEPTH, Assignment, AttemptResult, CellCancelledError, SessionPrefetch, run_cell
from kernel_matrix.attempt.building import BuildCancelledError, BuildResult
from kernel_matrix.attempt.source_findings import is_rejected
from kernel_matrix.executors.events import EventKind, RunEvent
from kernel_matrix.executors.local.run_state import RunState
from kernel_matrix.plan import Cell
from kernel_matrix.platforms import Gpu
from kernel_matrix.platforms.registry import get_platform


class DeviceLane:
    """Thread that runs cells on ``gpu``, or a group of devices, until there are none or it is quarantined."""

    def __init__(self, gpu: Gpu, shared: RunState) -> None:
        self._gpu = gpu
        self._uuids = {gpu.uuid, *(one.uuid for one in gpu.members)}
        self._shared = shared
        self._ahead: SessionPrefetch | None = None

    @property
    def name(self) -> str:
        """Name of the lane in events and threads."""
        return self._gpu.uuid

    @property
    def devices(self) -> int:
        """Number of devices that each cell of the lane runs on."""
        return len(self._gpu.members)

    def run(self) -> None:
        """Run all cells of the lane, in its own thread.

        Raises:
            CellCancelledError: The run was cancelled.
            StoreError: A record could not be written.
        """
        # What starts early on a CPU would run on the cores that are being timed.
        depth = DEPTH if get_platform(self._gpu.platform).IS_ACCELERATOR else 0
        try:
            with closing(SessionPrefetch(self._shared.context, self._next_assignments, depth)) as self._ahead:
                self._take_cells(self._ahead)
        finally:
            self._shared.pending.close(self._gpu)

    def _take_cells(self, ahead: SessionPrefetch) -> None:
        shared = self._shared
        while not shared.context.cancelled() and self._uuids.isdisjoint(shared.tally.quarantined):
            if not shared.pending.has_ready(self._gpu, shared.builds.is_ready):
                self._wait(ahead)
            cell = shared.pending.take(self._gpu, shared.builds.is_ready)
            if cell is None:
                return
            if why := shared.policy.why_skipped(cell):
                shared.skip(cell, self.name, why)
                shared.pending.finish(self._gpu)
            else:
                self._run_one(cell)

    def _wait(self, ahead: SessionPrefetch) -> None:
        """Get ready to wait: for builds, or for cells that may come."""
        pending, is_ready, keeps_s = (
            self._shared.pending,
            self._shared.builds.is_ready,
            self._shared.policy.keeps_judge_s,
        )
        if not keeps_s:
            ahead.end_kept()  # others may have the device while builds are awaited
            return
        ahead.start_spares()
        while pending.stays_empty(self._gpu, is_ready, keeps_s):
            ahead.end_kept()
            ahead.start_spares()  # where they have ended: processes without a job do not wait for ever

    def _run_one(self, cell: Cell) -> None:
        """Run one cell with its retries, and record each attempt."""
        shared = self._shared
        shared.tell(RunEvent(happening=EventKind.CELL_STARTED, cell=cell, lane=self.name))
        ran = self._attempt(cell)
        while shared.should_retry(cell):
            retried = RunEvent(happening=EventKind.CELL_RETRIED, cell=cell, lane=self.name, record=ran.record)
            if ran.quarantine:
                if shared.pending.give_back(self._gpu, partial(shared.tell, retried)):
                    return
                break
            shared.tell(retried)
            shared.builds.retry_if_lost(cell)
            ran = self._attempt(cell)
        shared.pending.finish(self._gpu)
        shared.end(cell, self.name, ran.record)

    def _attempt(self, cell: Cell) -> AttemptResult:
        """Run one attempt and record it."""
        shared = self._shared
        ran = shared.run_attempt(cell, self.name, lambda: self._run_in_turn(cell))
        if ran.quarantine:
            self._quarantine(cell, ran.quarantine)
        return ran

    def _run_in_turn(self, cell: Cell) -> AttemptResult:
        shared = self._shared
        assignment = self._assignment(cell)  # before the turn: it waits for the cell's build, which needs one, too
        with shared.builds.turn_to_time(cell):
            return run_cell(assignment, shared.context, self._ahead)

    def _quarantine(self, cell: Cell, why: str) -> None:
        self._shared.tally.quarantined.update(dict.fromkeys(self._uuids, why))
        self._shared.pending.retire(self._gpu)
        self._shared.tell(RunEvent(happening=EventKind.GPU_QUARANTINED, cell=cell, lane=self.name, text=why))

    def _assignment(self, cell: Cell) -> Assignment:
        """Return the assignment of ``cell`` to this lane's device.

        Raises:
            CellCancelledError: Its build was cancelled.
        """
        return Assignment(
            cell=cell,
            gpu=self._gpu,
            image=self._shared.survey.images.get(cell.toolchain.name),
            build=self._build_of(cell),
            attempt=self._shared.store.next_attempt(cell.id),
        )

    def _build_of(self, cell: Cell) -> BuildResult | None:
        try:
            return self._shared.builds.result(cell)
        except BuildCancelledError:
            raise CellCancelledError from None

    def _next_assignments(self, count: int) -> Sequence[Assignment]:
        """Return the next assignments of this lane, at most ``count``, without cells that never reach the device."""
        shared = self._shared
        if shared.context.cancelled():
            return ()
        reserved = shared.pending.reserve(self._gpu, count, shared.builds.is_ready)
        coming = [cell for cell in reserved if not shared.policy.why_skipped(cell) and not is_rejected(cell)]
        return [next_one for next_one in map(self._assignment, coming) if _is_started(next_one)]


def _is_started(assignment: Assignment) -> bool:
    """Return whether its processes will be started, which they are not if its build has failed."""
    return assignment.build is None or assignment.build.outcome is None
