"""Chunks: cells that one process measures one after the other on one GPU of a site."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class SlotKind:
    """GPUs that the engine of a site does not tell apart."""

    site: str
    resource: str
    """Name of the GPU model at that engine, such as ``h200``; ``cpu`` for CPUs."""

    def __str__(self) -> str:
        return f"{self.site}/{self.resource}"


@dataclass(frozen=True, slots=True)
class PlacedCell:
    """A cell that at least one site can run."""

    id: str
    expected_s: float
    kind: tuple[str, str]
    """GPU axis and toolchain, which all cells of a chunk have in common."""
    family: tuple[str, str]
    """Problem and dtype; cells that have them in common share a judge, and stay together."""
    slots: frozenset[SlotKind]
    """Where it can run."""
    moves: bool = False
    """True: only boards that have not measured it yet take it, and a job learns its board when it begins."""
    avoid: frozenset[str] = frozenset()
    """Nodes or boards that did not take it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Cells for one GPU."""

    number: int
    """Counts the chunks of a run."""
    slot: SlotKind
    cells: Sequence[PlacedCell]
    is_open: bool = False
    """True: its cells are sent while its job runs."""

    @property
    def expected_s(self) -> float:
        """Expected time of its cells, seconds."""
        return sum(cell.expected_s for cell in self.cells)

    @property
    def shortest_s(self) -> float:
        """Expected time of its shortest cell, seconds."""
        return min((cell.expected_s for cell in self.cells), default=0.0)

    @property
    def avoid(self) -> frozenset[str]:
        """Nodes or boards that did not take its cells."""
        return self.cells[0].avoid if self.cells else frozenset()

    @property
    def moves(self) -> bool:
        """True if some boards may take none of its cells."""
        return bool(self.cells) and all(cell.moves for cell in self.cells)
