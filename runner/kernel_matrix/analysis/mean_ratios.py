"""Geometric means of ratios over problems, of many slices at once, with intervals.

Workloads of a cell are averaged first, then the cells of a problem, then the problems: a problem with many workloads or
candidates counts once. With equal weights, mean and interval are those of
:func:`kernel_matrix.measure.intervals.log_interval` over problems. Where problems differ so little that chance is no
explanation, as with times that are all on one tick of a clock, the noise of sessions takes the place of their spread.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl
from scipy import special  # type: ignore[import-untyped]

from kernel_matrix.analysis.quantiles import normal_quantile
from kernel_matrix.analysis.standings import Floats, Places
from kernel_matrix.measure.intervals import t_quantile

_IMPLAUSIBLE: Final = 0.01
"""Problems differ too little if noise alone makes them differ so little with at most this probability."""

MEANS: Final[dict[str, pl.DataType]] = {
    "slice": pl.Int64(),
    "ratio": pl.Float64(),
    "low": pl.Float64(),
    "high": pl.Float64(),
    "noise": pl.Float64(),
    "problems": pl.Int64(),
    "workloads": pl.Int64(),
}
"""``ratio``: geometric mean over problems; ``low``, ``high``: its 95 % interval, null for fewer than two problems;
``noise``: half-width that the noise of sessions alone gives it, as a share; ``problems``: those with a weight above 0;
``workloads``: their ratios."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRatios:
    """Logarithms of ratios, one per workload of a cell; arrays of one length."""

    log: Floats
    variance: Floats
    """Variance of ``log`` that sessions cause."""
    cell: Places
    """Number of the cell."""
    problem: Places
    """Number of the problem."""
    weight: Floats
    """Weight of the problem; the same in all of its rows."""

    def __getitem__(self, rows: Places) -> LogRatios:
        """Select rows."""
        return LogRatios(
            log=self.log[rows],
            variance=self.variance[rows],
            cell=self.cell[rows],
            problem=self.problem[rows],
            weight=self.weight[rows],
        )

    def merged(self, slices: Places, group: Places) -> tuple[LogRatios, Places, Places]:
        """Average the rows of each slice and ``group``; also returns the slices, and the number of rows averaged."""
        size = int(group.max(initial=0)) + 1
        _, first, place, count = np.unique(
            slices * size + group, return_index=True, return_inverse=True, return_counts=True
        )
        means = LogRatios(
            log=np.bincount(place, self.log) / count,
            variance=np.bincount(place, self.variance) / count**2,
            cell=self.cell[first],
            problem=self.problem[first],
            weight=self.weight[first],
        )
        return means, slices[first], count


def mean_ratios(ratios: LogRatios, slices: Places) -> pl.DataFrame:
    """Compute one row per slice that has ratios, with the columns :data:`MEANS`, sorted.

    Args:
        ratios: The ratios.
        slices: Number of the slice of each ratio, from 0 on; those below 0 are in none.
    """
    kept = np.flatnonzero((slices >= 0) & (ratios.weight > 0))
    if not kept.size:
        return pl.DataFrame(schema=MEANS)
    cells, of_cells, _ = ratios[kept].merged(slices[kept], ratios.cell[kept])
    problems, of_problems, _ = cells.merged(of_cells, cells.problem)
    present, place, count = np.unique(of_problems, return_inverse=True, return_counts=True)
    share = problems.weight / np.bincount(place, problems.weight)[place]
    mean = np.bincount(place, share * problems.log)
    squares = np.bincount(place, share**2)
    off = np.bincount(place, share * (problems.log - mean[place]) ** 2)
    several = (count > 1) & (squares < 1)
    rest = np.where(several, 1 - squares, np.nan)
    # Satterthwaite's degrees of freedom of the weighted sum of squares; problems − 1 if the weights are equal.
    degrees = rest**2 / (squares - 2 * np.bincount(place, share**3) + squares**2)
    variance = off / rest * squares
    of_sessions = np.bincount(place, share**2 * problems.variance)
    noise = normal_quantile() * np.sqrt(of_sessions)
    little = variance * degrees < special.chdtri(degrees, 1 - _IMPLAUSIBLE) * of_sessions
    reach = np.where(little, noise, t_quantile(degrees) * np.sqrt(variance))
    with np.errstate(over="ignore", invalid="ignore"):
        low, high = np.exp(mean - reach), np.exp(mean + reach)
        bounded = np.isfinite(high)
        columns = {
            "slice": present,
            "ratio": np.exp(mean),
            "low": np.where(bounded, low, np.nan),
            "high": np.where(bounded, high, np.nan),
            "noise": np.expm1(noise),
            "problems": count,
            "workloads": np.bincount(np.searchsorted(present, slices[kept])),
        }
    return pl.DataFrame(columns, schema=MEANS, nan_to_null=True)
