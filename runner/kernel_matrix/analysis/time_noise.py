"""Standard error of each cell's time: the model of the noise of :mod:`kernel_matrix.analysis.differences` for one side.

The variance between sessions is the cell's own, drawn towards that of cells of its GPU and size of call. The variance
between runs is estimated where something was measured again in several runs: cells on several units or in several runs,
and the baseline, which every cell of a problem times again. If nothing has two sessions, what runs differ by is all
noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from kernel_matrix.analysis.differences import run_variance
from kernel_matrix.analysis.relabelled_sessions import LEAST_DEVIATION
from kernel_matrix.analysis.variance_prior import FEWEST_CELLS, Array, VariancePrior, fit_prior

FEWEST_SESSIONS: Final = 3
"""Sessions from which a cell's own spread is used where there are too few cells to draw it towards others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunNoise:
    """Variance between runs of a usual cell."""

    variance: float
    degrees: float
    """Degrees of freedom of the estimate; 0 if the tables show none, and ``variance`` is then 0."""

    @property
    def known(self) -> bool:
        """True if the tables show the noise between runs."""
        return self.degrees > 0


def run_noise(runs: pl.DataFrame) -> RunNoise:
    """Estimate the noise between runs from what was measured in several.

    Args:
        runs: One row per run: ``row`` (what was measured), ``n`` sessions, their ``mean``, and ``squares`` around it.
    """
    # In order, so that sums over the same tables are equal to the last digit.
    rows = runs.group_by("row", maintain_order=True).agg(
        runs=pl.len(),
        degrees=(pl.col("n") - 1).sum().cast(pl.Float64),
        total=pl.col("squares").sum(),
        apart=pl.col("mean").max() > pl.col("mean").min(),
    )
    # Equal means are one measurement that was copied, as a baseline of imported results.
    rows = rows.filter((pl.col("runs") > 1) & pl.col("apart"))
    if bool((rows["degrees"] > 0).any()):
        rows = rows.filter(pl.col("degrees") > 0)
    if rows.height < FEWEST_CELLS:
        return RunNoise(variance=0.0, degrees=0.0)
    variance = pl.when(pl.col("degrees") > 0).then(pl.col("total") / pl.col("degrees")).otherwise(0.0)
    several = runs.join(rows.with_columns(variance=variance), on="row")
    variance_ = run_variance(several.with_columns(side=0))
    return RunNoise(variance=variance_, degrees=float(several.height - rows.height))


def standard_errors(cells: pl.DataFrame, noise: RunNoise) -> tuple[pl.Series, pl.Series]:
    """Compute the standard error of each mean logarithm, and its degrees of freedom; null where the noise is unknown.

    Args:
        cells: ``gpu``, ``size`` (class of the time of a call), ``sessions``, ``runs``, ``squares`` around the mean of
            all sessions, and ``squares_within`` around those of each run.
        noise: Noise between runs.
    """
    sessions, runs = (cells[name].to_numpy().astype(np.float64) for name in ("sessions", "runs"))
    within = cells["squares_within" if noise.known else "squares"].to_numpy()
    own = sessions - runs if noise.known else sessions - 1
    degrees = np.where(sessions > 0, np.maximum(own, 0.0), 0.0)
    variance = np.maximum(within / np.maximum(degrees, 1.0), LEAST_DEVIATION**2)
    variance, degrees = _drawn(cells, variance, degrees)
    if noise.known and not (degrees > 0).any():  # runs of one session: their noise is all that there is
        variance, degrees = np.zeros_like(variance), np.full_like(degrees, noise.degrees)
    with np.errstate(divide="ignore", invalid="ignore"):
        of_sessions = variance / sessions
        of_runs = noise.variance / runs
        total = np.maximum(of_sessions + of_runs, LEAST_DEVIATION**2 / sessions)
        parts = of_sessions**2 / degrees + of_runs**2 / max(noise.degrees, 1.0)
        combined = np.where(parts > 0, total**2 / parts, degrees)  # Satterthwaite's approximation
    known = (degrees > 0) & (sessions > 0)
    error = pl.Series(np.where(known, np.sqrt(total), np.nan)).fill_nan(None)
    return error, pl.Series(np.where(known, combined, np.nan)).fill_nan(None)


def _drawn(cells: pl.DataFrame, variance: Array, degrees: Array) -> tuple[Array, Array]:
    """Draw variances towards those of the same GPU and size of call, of the GPU, or of all, whichever has enough cells.

    No degrees of freedom: the variance is unknown.
    """
    drawn, counted = _with(fit_prior(variance, degrees), variance, degrees)
    for key in (["gpu"], ["gpu", "size"]):
        for rows in cells.with_row_index("row").group_by(key).agg("row")["row"]:
            here = rows.to_numpy()
            prior = fit_prior(variance[here], degrees[here])
            if prior is not None:
                drawn[here], counted[here] = _with(prior, variance[here], degrees[here])
    return drawn, counted


def _with(prior: VariancePrior | None, variance: Array, degrees: Array) -> tuple[Array, Array]:
    if prior is None:
        return variance, np.where(degrees >= FEWEST_SESSIONS - 1, degrees, 0.0)
    drawn, counted = prior.shrink(variance, degrees)
    own = degrees > max(prior.degrees, 1.0)  # cells so unequal in noise say less of one than its own sessions
    return np.where(own, variance, drawn), np.where(own, degrees, counted)
