"""Executors of cells: ``local`` runs them on this host.

An executor is a callable that makes a :class:`CellRun`. To add one, add a package here and a line in :data:`EXECUTORS`,
or an entry point ``module:name`` of another package in the group ``kernel_matrix.executors``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from kernel_matrix.executors.events import RunEvent, RunMessage, RunStatus
from kernel_matrix.executors.run_policy import RunPolicy
from kernel_matrix.hosts.survey import HostSurvey
from kernel_matrix.model.enums import Status
from kernel_matrix.plan import Cell
from kernel_matrix.plugins import Registry
from kernel_matrix.results.store import RecordStore


class CellRun(Protocol):
    """One run over some cells. Use as ``with run.running() as events: for event in events: …``."""

    planned: int
    """Number of cells to run."""

    @property
    def counts(self) -> Counter[Status]:
        """Status → cells that ended so."""
        ...

    @property
    def quarantined(self) -> Mapping[str, str]:
        """UUID → reason why nothing more runs on that GPU in this run."""
        ...

    @property
    def left(self) -> int:
        """Number of cells that have not ended."""
        ...

    def running(self) -> AbstractContextManager[Iterator[RunEvent | RunMessage | RunStatus]]:
        """Run the cells in the background and yield the events; on leaving, everything is stopped and removed.

        Each cell that ends leaves a record in the store, and an event with that record.

        Raises:
            kernel_matrix.errors.InfrastructureError: Cells or the store fail; raised by the iterator.
        """
        ...


class Executor(Protocol):
    """Factory of runs; nothing starts before :meth:`CellRun.running`."""

    def __call__(self, cells: Sequence[Cell], survey: HostSurvey, store: RecordStore, policy: RunPolicy, /) -> CellRun:
        """Make a run.

        Args:
            cells: Cells to run.
            survey: Devices, sandbox and images of this host.
            store: Store for the records.
            policy: Name, deadline and limits of the run.
        """
        ...


EXECUTORS: Registry[Executor] = Registry(
    "executor", "kernel_matrix.executors", {"local": "kernel_matrix.executors.local:Run"}, members=("__call__",)
)
"""Name → factory of runs."""
