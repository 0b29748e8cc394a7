"""How many cells there are, how many run here, why the others do not, and how long it takes: per axis and in all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kernel_matrix.plan.cell import Cell, Skip, SkipReason

AXES = ("gpu", "toolchain", "dtype", "language", "category")
"""Axes that totals are kept by; problems and candidates are too many to be read as a table."""


@dataclass(slots=True)
class CellCounts:
    """Counts over some cells."""

    cells: int = 0
    runnable: int = 0
    expected_s: float = 0.0
    """Expected time of the runnable ones, one after the other, seconds."""
    hurdles: Counter[SkipReason] = field(default_factory=Counter)

    def add(self, count: int, reason: Skip | None, expected_s: float) -> None:
        """Count ``count`` cells with one reason that take ``expected_s`` each."""
        self.cells += count
        if reason is None:
            self.runnable += count
            self.expected_s += count * expected_s
        else:
            self.hurdles[reason.hurdle] += count


@dataclass(frozen=True, slots=True)
class PlanTotals:
    """Counts over the cells of a plan."""

    all: CellCounts
    axes: Mapping[str, Mapping[str, CellCounts]]
    """Axis → value → counts, values in the order they were met."""
    reasons: Mapping[Skip, int]
    """Distinct reasons, the most frequent first."""


def tally(cells: Iterable[Cell]) -> PlanTotals:
    """Count ``cells``, in one pass and in little memory."""
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
    """Cells by all that totals ask of them: far fewer kinds than cells."""
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
            cell.expected_s,
        )
        for cell in cells
    )
