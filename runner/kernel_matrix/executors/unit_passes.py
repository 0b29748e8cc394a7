"""Runs of cells that several boards have to measure (``units`` of the matrix)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace

from kernel_matrix.executors import CellRun, Executor
from kernel_matrix.executors.events import EventKind, RunEvent, RunMessage, RunStatus
from kernel_matrix.executors.local import UnitsLeft
from kernel_matrix.executors.run_policy import RunPolicy
from kernel_matrix.hosts.survey import HostSurvey
from kernel_matrix.model.enums import Fault, Status
from kernel_matrix.plan import Cell
from kernel_matrix.results.store import RecordStore


class UnitPasses:
    """One run of an executor after the other, each with the cells that another device still has to measure.

    No two devices have a cell at the same time, so that its attempts are in order. Use it like any
    :class:`~kernel_matrix.executors.CellRun`.

    Args:
        start: The executor.
        cells: Cells to run, longest first.
        units: Cell id → how often, and on which devices not.
        survey: For the executor.
        store: For the executor.
        policy: For the executor.
    """

    def __init__(
        self,
        start: Executor,
        cells: Sequence[Cell],
        units: Mapping[str, UnitsLeft],
        *,
        survey: HostSurvey,
        store: RecordStore,
        policy: RunPolicy,
    ) -> None:
        self.runs: list[CellRun] = []
        """Runs of the executor so far."""
        most = max((units[cell.id].count for cell in cells), default=0)
        self._passes = [[cell for cell in cells if units[cell.id].count > number] for number in range(max(1, most))]
        self.cells = [cell for one in self._passes for cell in one]
        """Each cell as often as devices measure it, in the order in which they do."""
        self.planned = len(self.cells)
        self._start = start
        self._survey = survey
        self._store = store
        self._policy = policy
        self._measured_on = {
            id_: set(left.measured_on) for id_, left in units.items() if left.count > 1 or left.measured_on
        }
        self._has_failed = False

    @property
    def counts(self) -> Counter[Status]:
        """Status → cells that ended so, counted for each device."""
        return sum((Counter(run.counts) for run in self.runs), Counter())

    @property
    def quarantined(self) -> Mapping[str, str]:
        """UUID → reason why nothing more runs on that GPU in this run."""
        return {uuid: why for run in self.runs for uuid, why in run.quarantined.items()}

    @property
    def left(self) -> int:
        """Number of cells that have not ended, counted for each device."""
        return self.planned - sum(run.planned - run.left for run in self.runs)

    @contextmanager
    def running(self) -> Iterator[Iterator[RunEvent | RunMessage | RunStatus]]:
        """Run the cells and yield the events; see :meth:`kernel_matrix.executors.CellRun.running`."""
        with closing(self._events()) as events:
            yield events

    def _events(self) -> Generator[RunEvent | RunMessage | RunStatus, None, None]:
        for cells in self._passes:
            measured_on = {**self._policy.measured_on, **{id_: set(on) for id_, on in self._measured_on.items()}}
            run = self._start(cells, self._survey, self._store, replace(self._policy, measured_on=measured_on))
            self.runs.append(run)
            with run.running() as events:
                for event in events:
                    self._note(event)
                    yield event
            # Whatever kept a cell from ending keeps it from the next device too: a deadline, a failure, a broken GPU.
            if run.left or run.quarantined or (self._policy.fail_fast and self._has_failed):
                return

    def _note(self, event: RunEvent | RunMessage | RunStatus) -> None:
        if not isinstance(event, RunEvent) or event.happening is not EventKind.CELL_ENDED or event.record is None:
            return
        outcome, uuid = event.record.outcome, event.record.host.device.get("uuid")
        self._has_failed |= outcome.fault is not Fault.NONE
        if outcome.fault is not Fault.INFRA and uuid is not None and event.cell.id in self._measured_on:
            self._measured_on[event.cell.id].add(uuid)
