"""Which kinds of GPU can run which cells."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kernel_matrix.fleet.chunks import PlacedCell, SlotKind
from kernel_matrix.plan import Cell, SkipReason

_ORDER = {reason: place for place, reason in enumerate(SkipReason)}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedCells:
    """A matrix over a fleet."""

    runnable: tuple[Cell, ...]
    slots: Mapping[str, frozenset[SlotKind]]
    """Cell id → where it can run."""
    skipped: tuple[Cell, ...]
    """Cells that no kind of GPU can run, each with the reason of the one that comes nearest to running it."""


def placed_cell(cell: Cell, slots: frozenset[SlotKind], *, moves: bool = False) -> PlacedCell:
    """Return what the dispatcher knows of ``cell``, which can run on ``slots``; ``moves``: on boards new to it only."""
    return PlacedCell(
        id=cell.id,
        expected_s=cell.expected_s,
        kind=(cell.gpu.name, cell.toolchain.name),
        family=(cell.problem.id, cell.dtype.value),
        slots=slots,
        moves=moves,
    )


def place(cells_of: Mapping[SlotKind, Iterable[Cell]]) -> PlacedCells:
    """Merge the plans of all kinds of GPU.

    Args:
        cells_of: Kind of GPU → every cell, planned for what its nodes have.
    """
    runnable: dict[str, Cell] = {}
    slots: dict[str, set[SlotKind]] = {}
    nearest: dict[tuple[object, ...], Cell] = {}
    for slot, cells in cells_of.items():
        for cell in cells:
            if cell.reason is None:
                runnable.setdefault(cell.id, cell)
                slots.setdefault(cell.id, set()).add(slot)
            elif _point(cell) not in nearest or _nearness(cell) > _nearness(nearest[_point(cell)]):
                nearest[_point(cell)] = cell
    run_somewhere = set(map(_point, runnable.values()))
    return PlacedCells(
        runnable=tuple(runnable.values()),
        slots={id_: frozenset(where) for id_, where in slots.items()},
        skipped=tuple(cell for point, cell in nearest.items() if point not in run_somewhere),
    )


def _point(cell: Cell) -> tuple[object, ...]:
    """Return what names ``cell`` in the matrix at every place; its id also depends on how devices are linked there."""
    what = cell.problem.id, cell.problem.ranks, cell.candidate.id, cell.compile_only
    return cell.gpu.name, cell.toolchain.name, cell.dtype, *what


def _nearness(cell: Cell) -> int:
    """Return how late the check failed: a cell that only lacks an image is nearer than one that lacks a GPU."""
    return -1 if cell.reason is None else _ORDER[cell.reason.kind]
