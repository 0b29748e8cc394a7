"""Selection of the cells of a plan that still have to run."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from kernel_matrix.hosts.survey import Conditions
from kernel_matrix.model.enums import Fault, Status
from kernel_matrix.plan import Cell
from kernel_matrix.results.store import AttemptSummary, RecordStore


class Rerun(str, Enum):
    """Rule for running cells again that have a record."""

    NONE = "none"
    """Only cells whose last attempt was an infrastructure failure or a first ``timing_mismatch``."""
    FAILED = "failed"
    """Also cells whose last attempt did not pass."""
    STALE = "stale"
    """Also cells that ran with another sandbox, image, driver or measurement version than now."""
    ALL = "all"
    """Every cell."""


class RunPlace(Protocol):
    """A place where cells can run: this host, or the nodes of a fleet."""

    def conditions(self, cell: Cell) -> Conditions:
        """Return what a cell would meet there."""
        ...

    def devices(self, cell: Cell) -> Collection[str] | None:
        """Return the UUIDs of the devices there that can run a cell; None if they are not known."""
        ...


@dataclass(frozen=True, slots=True)
class UnitsLeft:
    """How often a cell still has to run, each time on another device."""

    count: int
    absent: int = 0
    """How many more are wanted than there are devices."""
    measured_on: frozenset[str] = frozenset()
    """UUIDs of the devices that have measured it and need not again; empty where any one device will do."""


def cells_to_run(cells: Sequence[Cell], store: RecordStore, place: RunPlace, rerun: Rerun) -> list[Cell]:
    """Return the cells that still have to run, longest first."""
    return cells_left(cells, store.attempts() if rerun is not Rerun.ALL else {}, place, rerun)


def cells_left(
    cells: Sequence[Cell], attempts: Mapping[str, Sequence[AttemptSummary]], place: RunPlace, rerun: Rerun
) -> list[Cell]:
    """Return the cells that still have to run after ``attempts``, longest first.

    Those that differ in their candidates alone stay together, since they can share a judge.

    Args:
        cells: Cells of a plan.
        attempts: Cell id → its attempts in order; :attr:`Rerun.ALL` ignores them.
        place: Where they would run.
        rerun: Rule for cells that have a record.
    """
    return longest_first([cell for cell in cells if units_left(cell, attempts.get(cell.id, ()), place, rerun).count])


def longest_first(cells: Sequence[Cell]) -> list[Cell]:
    """Sort cells by expected time; those that differ in their candidates alone stay together."""
    longest: dict[tuple[str, ...], float] = {}
    for cell in cells:
        longest[_group(cell)] = max(cell.expected_s, longest.get(_group(cell), 0.0))
    return sorted(cells, key=lambda cell: (-longest[_group(cell)], _group(cell), -cell.expected_s))


def units_left(cell: Cell, attempts: Sequence[AttemptSummary], place: RunPlace, rerun: Rerun) -> UnitsLeft:
    """Return how often ``cell`` still has to run after ``attempts``; for the arguments see :func:`cells_left`."""
    if cell.gpu.units == 1 or cell.compile_only:
        return UnitsLeft(0 if _is_done(cell, attempts, place, rerun) else 1)
    by_unit: dict[str | None, list[AttemptSummary]] = {}
    for attempt in attempts:
        by_unit.setdefault(attempt.gpu_uuid, []).append(attempt)
    measured_on = frozenset(
        uuid for uuid, tried in by_unit.items() if uuid is not None and _is_done(cell, tried, place, rerun)
    )
    wanted = max(0, cell.gpu.units - len(measured_on))
    devices = place.devices(cell)
    count = wanted if devices is None else min(wanted, len(frozenset(devices) - measured_on))
    return UnitsLeft(count, wanted - count, measured_on)


def _group(cell: Cell) -> tuple[str, ...]:
    return cell.problem.id, cell.dtype.value, cell.toolchain.name, cell.gpu.name


def is_first_mismatch(statuses: Sequence[Status]) -> bool:
    """Return whether the last attempt is the cell's only one whose claims were contradicted.

    A single such session is weak evidence: a process on a slow core has unexplained time for as long as it stays there.
    """
    return statuses[-1] is Status.TIMING_MISMATCH and statuses.count(Status.TIMING_MISMATCH) == 1


def _is_done(cell: Cell, attempts: Sequence[AttemptSummary], place: RunPlace, rerun: Rerun) -> bool:
    if rerun is Rerun.ALL or not attempts or attempts[-1].fault is Fault.INFRA:
        return False
    last = attempts[-1]
    if rerun is Rerun.FAILED:
        return last.fault is Fault.NONE
    if is_first_mismatch([attempt.status for attempt in attempts]):
        return False
    return rerun is not Rerun.STALE or not _is_stale(cell, last, place)


def _is_stale(cell: Cell, last: AttemptSummary, place: RunPlace) -> bool:
    now = place.conditions(cell).get((last.engine, last.image_id, last.measurement_version))
    return now is None or (not cell.compile_only and last.driver not in now)
