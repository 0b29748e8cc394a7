"""Totals of a plan: numbers of cells, runnable cells, reasons to skip and expected time, per axis and in all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kernel_matrix.plan.cell import Cell, Skip, SkipReason

AXES = ("gpu", "toolchain", "dtype", "language", "category")
"""Axes with totals; problems and candidates are too many for a table."""


@dataclass(slots=True)
class CellCounts:
    """Counts over some cells."""

    cells: int = 0
    runnable: int = 0
    expected_s: float = 0.0
    """Expected time of the runnable cells, run one after the other on each of their units, seconds."""
    skipped: Counter[SkipReason] = field(default_factory=Counter)

    def add(self, count: int, reason: Skip | None, expected_s: float) -> None:
        """Count ``count`` cells with one reason and an expected time of ``expected_s`` each."""
        self.cells += count
        if reason is None:
            self.runnable += count
            self.expected_s += count * expected_s
        else:
            self.skipped[reason.kind] += count


@dataclass(frozen=True, slots=True)
class PlanTotals:
    """Counts over the cells of a plan."""

    all: CellCounts
    axes: Mapping[str, Mapping[str, CellCounts]]
    """Axis → value → counts, values in the order of their first cell."""
    reasons: Mapping[Skip, int]
    """Distinct reasons, the most frequent first."""


def tally(cells: Iterable[Cell]) -> PlanTotals:
    """Count ``cells`` in one pass with little memory."""
    whole, reasons = CellCounts(), Counter[Skip]()
    axes: dict[str, dict[str, CellCounts]] = {axis: {} for axis in AXES}
    for (names, reason, expected_s), count in _count_kinds(cells).items():
        whole.add(count, reason, expected_s)
        for axis, name in zip(AXES, names, strict=True):
            axes[axis].setdefault(name, CellCounts()).add(count, reason, expected_s)
        if reason is not None:
            reasons[reason] += count
    return PlanTotals(whole, axes, dict(reasons.most_common()))


def _count_kinds(cells: Iterable[Cell]) -> Counter[tuple[tuple[str, ...], Skip | None, float]]:
    """Count cells by their values on all axes, reason and time; there are far fewer such kinds than cells."""
    return Counter(
        (
            (
                cell.gpu.name,
                cell.toolchain.name,
                cell.dtype.value,
                cell.candidate.language.value,
                cell.problem.category,
            ),
            cell.reason,
            cell.expected_s * cell.gpu.units,
        )
        for cell in cells
    )
