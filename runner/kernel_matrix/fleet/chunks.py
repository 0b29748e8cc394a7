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


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Cells for one GPU."""

    number: int
    """Counts the chunks of a run."""
    slot: SlotKind
    cells: Sequence[PlacedCell]

    @property
    def expected_s(self) -> float:
        """Expected time of its cells, seconds."""
        return sum(cell.expected_s for cell in self.cells)

    @property
    def shortest_s(self) -> float:
        """Expected time of its shortest cell, seconds."""
        return min((cell.expected_s for cell in self.cells), default=0.0)
