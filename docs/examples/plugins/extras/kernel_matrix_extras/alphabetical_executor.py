"""The executor ``alphabetical``: runs cells on this host in the order of their candidates' names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from kernel_matrix.executors.events import RunEvent
from kernel_matrix.executors.local import Run
from kernel_matrix.executors.run_policy import RunPolicy
from kernel_matrix.hosts.survey import HostSurvey
from kernel_matrix.model.enums import Status
from kernel_matrix.plan import Cell
from kernel_matrix.results.store import RecordStore


class AlphabeticalRun:
    """Runs one cell after the other, each by the executor ``local``."""

    def __init__(self, cells: Sequence[Cell], survey: HostSurvey, store: RecordStore, policy: RunPolicy) -> None:
        ordered = sorted(cells, key=lambda cell: cell.candidate.id)
        self._runs = [Run([cell], survey, store, policy) for cell in ordered]
        self.planned = len(ordered)

    @property
    def counts(self) -> Counter[Status]:
        """Status → cells that ended so."""
        return sum((run.counts for run in self._runs), Counter[Status]())

    @property
    def quarantined(self) -> Mapping[str, str]:
        """UUID → why nothing more runs on that GPU in this run."""
        return {uuid: reason for run in self._runs for uuid, reason in run.quarantined.items()}

    @property
    def left(self) -> int:
        """Cells that were not brought to an end."""
        return sum(run.left for run in self._runs)

    @contextmanager
    def running(self) -> Iterator[Iterator[RunEvent]]:
        """Run the cells while the events are read."""
        yield self._events()

    def _events(self) -> Iterator[RunEvent]:
        for run in self._runs:
            with run.running() as events:
                yield from events
