"""Comparison of boards of one model on the cells that they share."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl

from kernel_matrix.analysis.components import Array
from kernel_matrix.analysis.differences import DEFAULT_DEGREES, DEFAULT_RUN_DEVIATION
from kernel_matrix.analysis.questions import Answer
from kernel_matrix.analysis.timed_sessions import TimedSessions, squares_around
from kernel_matrix.measure.intervals import LEVEL, t_quantile

_MODELS: Final[dict[str, pl.DataType]] = {
    "gpu_name": pl.String(),
    "of": pl.String(),
    "units": pl.Int64(),
    "cells": pl.Int64(),
    "sd_cells_percent": pl.Float64(),
    "i_squared": pl.Float64(),
    "tau_percent": pl.Float64(),
    "tau_low_percent": pl.Float64(),
    "tau_high_percent": pl.Float64(),
    "new_unit_percent": pl.Float64(),
    "worst_unit": pl.String(),
    "worst_percent": pl.Float64(),
}
_FEWEST_DEGREES: Final = 2
"""Degrees of freedom from which the spread between nights is used; an interval from one is thirteen times as wide."""
_COMPARED: Final = {"candidate": "time", "speedup": "speedup"}
"""Measure → its name in the answer."""
_MODELS_MEAN: Final = {
    "of": "Compared by the candidates' times, or by their speed-ups, in which most of the difference cancels.",
    "cells": "Cells that two units or more measured.",
    "sd_cells_percent": "Median over cells of the standard deviation of log means between units, percent.",
    "i_squared": "Share of the variation between units that is not chance, 0 to 1 (Higgins and Thompson 2002).",
    "tau_percent": "Standard deviation between units (DerSimonian and Laird 1986), percent.",
    "tau_low_percent": "95 % bounds by Q profile (Viechtbauer 2007).",
    "new_unit_percent": "95 % prediction interval of the effect of another unit of the model, ± percent.",
    "worst_unit": "The unit with the longest times, or the lowest speed-ups.",
}
_UNITS_MEAN: Final = {
    "effect_percent": "Times (or speed-ups) against the mean of the model's units, on cells they share: "
    "least squares of log = cell + unit.",
    "low_percent": "95 % bounds.",
    "bounds_from": "Their source: the spread of the unit's nights; with too few, the disagreement between cells and an "
    f"assumed difference between runs of {100 * DEFAULT_RUN_DEVIATION:g} %.",
}
_UNITS: Final[dict[str, pl.DataType]] = {
    "gpu_name": pl.String(),
    "of": pl.String(),
    "unit": pl.String(),
    "cells": pl.Int64(),
    "effect_percent": pl.Float64(),
    "low_percent": pl.Float64(),
    "high_percent": pl.Float64(),
    "bounds_from": pl.String(),
}


def between_units(measured: TimedSessions) -> list[Answer]:
    """Compare boards of one model on the cells that they share."""
    models, boards = [], []
    for (model,), rows in _means(measured.values).group_by(["gpu_name"]):
        for of, name in _COMPARED.items():
            columns = [pl.col(f"{column}_{of}").alias(column) for column in ("y", "n", "ss")]
            shared = rows.select("cell", "unit", "night", *columns).drop_nulls("y")
            shared = shared.filter(pl.col("unit").n_unique().over("cell") > 1)
            if shared.is_empty():
                continue
            compared = compare_units(shared)
            models.append({"gpu_name": model, "of": name, **compared.summary(slowest=of == "candidate")})
            boards += [{"gpu_name": model, "of": name, **row} for row in compared.rows()]
    notes = [] if models else ["No cell was measured on two units of one model, so units cannot be compared."]
    order = ["gpu_name", "of"]
    return [
        Answer(
            name="heterogeneity",
            title="Differences between boards of one model",
            table=pl.DataFrame(models, schema=_MODELS).sort(order),
            meanings=_MODELS_MEAN,
            notes=notes,
        ),
        Answer(
            name="units",
            title="Each board against the mean of its model",
            table=pl.DataFrame(boards, schema=_UNITS).sort([*order, "unit"]),
            meanings=_UNITS_MEAN,
            notes=notes,
        ),
    ]


def _means(values: pl.DataFrame) -> pl.DataFrame:
    """Compute the session means per model, cell, unit and night, for cells that several units measured."""
    known = values.filter(pl.col("unit").is_not_null() & pl.col("gpu_name").is_not_null())
    where = known.select("gpu_name", "cell", "unit").unique().select("gpu_name", "cell")
    shared = where.filter(where.is_duplicated()).unique()  # usually few, which keeps the grouping cheap
    logs = {of: pl.col(f"log_{of}") for of in _COMPARED}
    return (
        known.join(shared, on=["gpu_name", "cell"], how="semi")
        .group_by("gpu_name", "cell", "unit", "night")
        .agg(
            *(log.mean().alias(f"y_{of}") for of, log in logs.items()),
            *(log.count().alias(f"n_{of}") for of, log in logs.items()),
            *(squares_around(log).alias(f"ss_{of}") for of, log in logs.items()),
        )
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitEffects:
    """Effects of units on the logarithm, with their variances."""

    names: list[str]
    effects: Array
    """Against the mean of all units."""
    variances: Array
    """Sampling variance of each unit's mean; NaN where unknown."""
    degrees: float
    by_nights: bool
    """True if the variances are those between nights, else of cells and an assumed difference between runs."""
    cells_of: Array
    worth: Array
    """As many cells as would make a unit's effect as certain, were each measured on all units of its group."""
    group: Array
    """Index of the first unit of a unit's group; cells link the units of a group, and no others."""
    cells: int
    spread: float

    def rows(self) -> list[dict[str, Any]]:
        """Make one row per unit."""
        units = len(self.names)
        # A unit's own part of the mean of all units makes its distance from it smaller.
        against_mean = self.variances * (1 - 2 / units) + self.variances.sum() / units**2
        reach = t_quantile(self.degrees) * np.sqrt(against_mean)
        source = "its nights" if self.by_nights else "cells, and a default for runs"
        return [
            {
                "unit": name,
                "cells": int(count),
                "effect_percent": _shift(effect),
                "low_percent": _shift(effect - half),
                "high_percent": _shift(effect + half),
                "bounds_from": source if math.isfinite(half) else "one session a unit: no bounds",
            }
            for name, count, effect, half in zip(self.names, self.cells_of, self.effects, reach, strict=True)
        ]

    def summary(self, *, slowest: bool) -> dict[str, Any]:
        """Make the model's row."""
        worst = int(np.argmax(self.effects if slowest else -self.effects))
        tau, low, high, share = variance_between(self.effects, self.variances, self.degrees)
        count = len(self.names)
        expected = None
        if tau is not None and count > 2:
            error = float(np.mean(self.variances)) / count
            expected = _shift(t_quantile(count - 2) * math.sqrt(tau + tau / count + error))
        return {
            "units": count,
            "cells": self.cells,
            "sd_cells_percent": 100 * self.spread,
            "i_squared": share,
            "tau_percent": _root(tau),
            "tau_low_percent": _root(low),
            "tau_high_percent": _root(high),
            "new_unit_percent": expected,
            "worst_unit": self.names[worst],
            "worst_percent": _shift(self.effects[worst]),
        }


def compare_units(nightly: pl.DataFrame) -> UnitEffects:
    """Fit ``y`` = cell + unit by least squares.

    Args:
        nightly: ``cell``, ``unit``, ``night``, and of its ``n`` sessions the mean ``y`` and the sum of squares ``ss``.
    """
    names = sorted(nightly["unit"].unique().to_list())
    number = pl.col("unit").replace_strict(names, range(len(names)), return_dtype=pl.Int64).alias("u")
    nightly = nightly.with_columns(number)
    total = pl.col("n").sum()
    within = (
        pl.col("ss").sum() + (pl.col("n") * pl.col("y") ** 2).sum() - (pl.col("n") * pl.col("y")).sum() ** 2 / total
    )
    shared = nightly.group_by("cell", "u", maintain_order=True).agg(
        y=(pl.col("n") * pl.col("y")).sum() / total, ss=within.clip(lower_bound=0.0), n=total
    )
    coded = shared.with_columns(
        (pl.col("y") - pl.col("y").mean().over("cell")).alias("d"),
        pl.len().over("cell").cast(pl.Float64).alias("g"),
    )
    met = coded.select("cell", "u", "g").join(coded.select("cell", pl.col("u").alias("v")), on="cell")
    met = met.group_by("u", "v").agg((1 / pl.col("g")).sum().alias("w"))
    per_unit = coded.group_by("u").agg(pl.len().alias("k"), pl.col("d").sum()).sort("u")
    cells_of = per_unit["k"].cast(pl.Float64).to_numpy()
    normal = np.diag(cells_of)
    np.subtract.at(normal, (met["u"].to_numpy(), met["v"].to_numpy()), met["w"].to_numpy())
    inverse = np.linalg.pinv(normal, rcond=1e-9, hermitian=True)
    effects = inverse @ per_unit["d"].to_numpy()
    effects -= effects.mean()
    known = inverse @ normal  # less the means of groups
    worth = np.diag(known) / np.diag(inverse)
    group = np.argmax(np.abs(known - np.eye(len(names))) > 0.5 / len(names), axis=1)
    rest = float((coded["d"] ** 2).sum() - effects @ per_unit["d"].to_numpy())
    cells = coded["cell"].n_unique()
    degrees = float(coded.height - cells - round(np.trace(known)))
    between = _between_nights(nightly, coded, effects)
    if between is not None:
        variances, degrees = between
    else:
        variances, degrees = _of_cells(coded, worth, rest, degrees)
    spread = shared.group_by("cell").agg(pl.col("y").std())["y"].median()
    return UnitEffects(
        names=names,
        effects=effects,
        variances=variances,
        degrees=degrees,
        by_nights=between is not None,
        cells_of=cells_of,
        worth=worth,
        group=group,
        cells=cells,
        spread=float(spread),  # type: ignore[arg-type]  # a median of numbers
    )


def _of_cells(coded: pl.DataFrame, worth: Array, rest: float, degrees: float) -> tuple[Array, float]:
    """Return the units' variances from the disagreement between cells, and from what runs are assumed to differ by."""
    if degrees > 0:
        variance_ = max(rest, 0.0) / degrees
    else:  # with one cell, its sessions have to replace the disagreement between cells
        degrees = float((coded["n"] - 1).sum())
        variance_ = float(coded["ss"].sum()) / degrees * float((1 / coded["n"]).mean()) if degrees > 0 else math.nan  # type: ignore[arg-type]  # a mean of numbers
    of_cells, of_runs = variance_ / worth, DEFAULT_RUN_DEVIATION**2
    total = of_cells + of_runs
    if degrees > 0:  # Satterthwaite's approximation
        parts = float(of_cells.mean()) ** 2 / degrees + of_runs**2 / DEFAULT_DEGREES
        degrees = float(total.mean()) ** 2 / parts
    return total, degrees


def _between_nights(nightly: pl.DataFrame, coded: pl.DataFrame, effects: Array) -> tuple[Array, float] | None:
    """Return the units' variances from the spread of their nights, in which all cells of a night move together.

    What all units of a night have in common is taken out. None if fewer than :data:`_FEWEST_DEGREES` are left.
    """
    of_unit = pl.DataFrame({"u": np.arange(len(effects)), "effect": effects})
    cell = coded.join(of_unit, on="u").group_by("cell").agg(level=(pl.col("y") - pl.col("effect")).mean())
    off = (
        nightly.join(of_unit, on="u")
        .join(cell, on="cell")
        .group_by("u", "night")
        .agg(off=(pl.col("y") - pl.col("effect") - pl.col("level")).mean())
        .with_columns(off=pl.col("off") - pl.col("off").mean().over("u"))
    )
    nights_of = off.group_by("u").len().sort("u")["len"].cast(pl.Float64).to_numpy()
    degrees = float(off.height - len(effects))
    nights = off["night"].n_unique()
    if nights * len(effects) == off.height:  # every unit in every night
        off = off.with_columns(off=pl.col("off") - pl.col("off").mean().over("night"))
        degrees -= nights - 1
    if degrees < _FEWEST_DEGREES:
        return None
    variance_ = float((off["off"] ** 2).sum()) / degrees
    return variance_ / nights_of, degrees


def variance_between(
    effects: Array, variances: Array, degrees: float
) -> tuple[float | None, float | None, float | None, float | None]:
    """Compute the variance between units, its 95 % bounds, and I²; all None if the sampling variance is unknown.

    τ² = max(0, (Q − E[Q]) / (Σw − Σw²/Σw)) with w = 1 / variance (DerSimonian and Laird, Controlled Clinical Trials 7,
    1986); E[Q] = (units − 1) · d / (d − 2), since the variances are estimated with d degrees of freedom. Bounds are the
    τ² at which Q has its 97.5 % and 2.5 % quantile (Q profile: Viechtbauer, Statistics in Medicine 26, 2007), with
    those of F since d is finite.
    """
    from scipy.special import fdtri  # type: ignore[import-untyped]  # noqa: PLC0415  # no types; loads for 0.2 s

    apart = len(effects) - 1
    tau, expected = moment_variance(effects, variances, degrees)
    if tau is None:
        return None, None, None, None
    q = _q(effects, variances, 0.0)
    low, high = (
        _where_q_is(effects, variances, apart * float(fdtri(apart, degrees, level)))
        for level in ((1 + LEVEL) / 2, (1 - LEVEL) / 2)
    )
    return tau, low, high, max(0.0, (q - expected) / q) if q > 0 else 0.0


def moment_variance(effects: Array, variances: Array, degrees: float) -> tuple[float | None, float]:
    """Compute τ² of :func:`variance_between`, None if the sampling variance is unknown, and E[Q]."""
    apart = len(effects) - 1
    expected = apart / (1 - 2 / degrees) if degrees > 2 else float(apart)
    if apart < 1 or not (np.isfinite(variances).all() and (variances > 0).all()) or degrees < 1:
        return None, expected
    weights = 1 / variances
    scale = weights.sum() - (weights**2).sum() / weights.sum()
    return max(0.0, float((_q(effects, variances, 0.0) - expected) / scale)), expected


def _q(effects: Array, variances: Array, tau: float) -> float:
    weights = 1 / (variances + tau)
    return float((weights * (effects - (weights * effects).sum() / weights.sum()) ** 2).sum())


def _where_q_is(effects: Array, variances: Array, wanted: float) -> float:
    """Find the τ² at which Q, which falls with τ², is ``wanted``; 0 if Q(0) is already below."""
    if _q(effects, variances, 0.0) <= wanted:
        return 0.0
    low, high = 0.0, float(np.ptp(effects) ** 2 * len(effects) / wanted)
    while _q(effects, variances, high) > wanted:
        high *= 2
    for _ in range(100):  # bisection: importing scipy.optimize would take longer than all of it
        middle = (low + high) / 2
        low, high = (middle, high) if _q(effects, variances, middle) > wanted else (low, middle)
    return (low + high) / 2


def _shift(log_ratio: float) -> float | None:
    return 100 * math.expm1(min(log_ratio, 700.0)) if math.isfinite(log_ratio) else None


def _root(variance_: float | None) -> float | None:
    return None if variance_ is None else 100 * math.sqrt(variance_)
