"""Checks for a board that is slower than the other boards of its model.

Boards are compared by the baseline's times. Every cell measures it, so boards share these even if no candidate ran on
two of them; and a candidate that is slow on purpose cannot put a board under suspicion. Only times of one problem,
workload, dtype, toolchain, image and driver are compared, by the model of :mod:`kernel_matrix.analysis.units`: the
logarithm of a time is an effect of the cell plus one of the board. Times far off this sum are drawn in first.

A slow board must lie beyond the spread of the others, which is estimated without it. To keep several slow boards from
hiding each other, the slowest board is compared with the rest, then the second slowest with all that are faster, up to
just below half of the boards. The last one that differs is slow, and so are those that are slower still (Rosner,
Technometrics 25, 1983).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from kernel_matrix.analysis.audit.check import figure, make_findings, percent
from kernel_matrix.analysis.differences import DEFAULT_DEGREES, DEFAULT_RUN_DEVIATION
from kernel_matrix.analysis.outcomes import sessions
from kernel_matrix.analysis.quantiles import NORMAL_MAD
from kernel_matrix.analysis.sentences import sentence
from kernel_matrix.analysis.tables import Tables
from kernel_matrix.analysis.timed_sessions import log_of, squares_around
from kernel_matrix.analysis.units import UnitEffects, compare_units, moment_variance
from kernel_matrix.analysis.variance_prior import VariancePrior
from kernel_matrix.measure.intervals import t_quantile

Indices = npt.NDArray[np.intp]

_MARGIN: Final = 0.03
"""Share by which a board must be slower: identical code differed by up to 3.2 % between two processes."""
_CHANCE: Final = 0.01
"""Chance of a false finding in an audit by the test alone; the margin makes it smaller by far."""
_FEWEST_CELLS: Final = 10
"""Cells that must link a board to the others: fewer do not show their noise."""
_FAR: Final = 3.0
"""Robust z from which times are drawn in."""
_ROUNDS: Final = 10
"""Rounds of the median polish."""
_SPREAD: Final = VariancePrior(variance=DEFAULT_RUN_DEVIATION**2, degrees=DEFAULT_DEGREES)
"""Spread of boards without a fault that is assumed; that of a few boards is drawn towards it."""
_CELL: Final = ("gpu_name", "toolchain", "dtype", "problem", "problem_sha256", "workload", "image_id", "driver")
_FOUND: Final[dict[str, pl.DataType]] = {
    "gpu_name": pl.String(),
    "gpu_uuid": pl.String(),
    "others": pl.Int64(),
    "other": pl.String(),
    "cells": pl.Int64(),
    "slower": pl.Float64(),
    "low": pl.Float64(),
    "high": pl.Float64(),
}


def slow_unit(tables: Tables) -> pl.LazyFrame:
    """Find boards that are slower than most boards of their model."""
    found = _with_clocks(_slow_units(tables).filter(pl.col("others") > 1), tables)
    evidence = sentence("{}{}", _compared(sentence("{} other {}", "others", "gpu_name")), "clocks")
    return make_findings(found, evidence, count=pl.col("cells"), worst=pl.col("slower"))


def units_apart(tables: Tables) -> pl.LazyFrame:
    """Find two boards of one model, without a third to compare them with, of which one is slower."""
    found = _with_clocks(_slow_units(tables).filter(pl.col("others") == 1), tables)
    evidence = sentence("{}{}; which of the two is odd is open", _compared(pl.col("other")), "clocks")
    # The finding is about both boards, so it names none in the column.
    about_both = found.select("gpu", "cells", "slower", evidence=evidence)
    return make_findings(about_both, pl.col("evidence"), count=pl.col("cells"), worst=pl.col("slower"))


def _compared(others: pl.Expr) -> pl.Expr:
    low, high = (percent(pl.col(name)) for name in ("low", "high"))
    template = "{} is {} slower than {} ({} to {}) by the baseline's times in {} cells"
    return sentence(template, "gpu_uuid", percent(pl.col("slower")), others, low, high, "cells")


def _with_clocks(found: pl.DataFrame, tables: Tables) -> pl.LazyFrame:
    """Add the ``gpu`` of each board, and as ``clocks`` a text that its clock was lower than that of the others."""
    units = tables.cells.filter(pl.col("gpu_name").is_in(found["gpu_name"].unique().implode()))
    by_unit = units.group_by("gpu_name", "gpu_uuid").agg(
        pl.when(pl.col("gpu").n_unique() == 1).then(pl.col("gpu").first()), mhz=pl.col("sm_clock_mhz").median()
    )
    known = by_unit.with_columns(most=pl.col("mhz").max().over("gpu_name"))
    low = pl.col("mhz") < (1 - _MARGIN) * pl.col("most")
    text = sentence("; its SM clock was {} MHz, of others up to {} MHz", figure(pl.col("mhz")), figure(pl.col("most")))
    clocks = pl.when(low).then(text).otherwise(pl.lit(""))
    return found.lazy().join(known, on=["gpu_name", "gpu_uuid"], how="left").with_columns(clocks=clocks)


def _slow_units(tables: Tables) -> pl.DataFrame:
    """Return the boards that are slower than others of their model by more than chance and the margin."""
    by_model = _times(tables).group_by("gpu_name", maintain_order=True)
    compared = [(str(model), compare_units(rows)) for (model,), rows in by_model]
    groups = [(model, effects, members) for model, effects in compared for members in _linked(effects)]
    level = 1 - 2 * _CHANCE / max(1, sum(members.size for *_, members in groups))  # of two sides; one is asked for
    rows = [row for model, effects, members in groups for row in _beyond(model, effects, members, level)]
    return pl.DataFrame(rows, schema=_FOUND)


def _times(tables: Tables) -> pl.DataFrame:
    """Read the baseline's times of each model, ``cell``, ``unit`` and ``night``, of cells that several units share.

    Returns:
        As :func:`compare_units` takes them, per ``gpu_name``: the median ``y`` of ``n`` sessions on the scale of
        logarithms, with times that are far off drawn in.
    """
    known = sessions(tables.cells).filter(pl.col("gpu_uuid").is_not_null() & pl.col("gpu_name").is_not_null())
    logs = known.select(
        "gpu_name", "night", unit="gpu_uuid", cell=pl.struct(_CELL).hash(), log=log_of(pl.col("baseline_median_ns"))
    ).drop_nulls("log")
    key = ("gpu_name", "cell", "unit", "night")
    log, left = pl.col("log"), pl.col("left")
    means = logs.group_by(key).agg(y=log.median(), n=pl.len(), ss=squares_around(log))
    shared = means.filter((pl.col("unit") != pl.col("unit").first()).any().over("cell"))
    rows = shared.with_columns(left=pl.col("y")).collect(engine="streaming").sort("cell", "unit", "night")
    for _ in range(_ROUNDS):  # median polish
        rows = rows.with_columns(left - left.median().over("cell"))
        rows = rows.with_columns(left - left.median().over("unit"))
    fitted = pl.col("cell").n_unique() + pl.col("unit").n_unique() - 1
    usual = NORMAL_MAD * left.abs().median() * (pl.len() / (pl.len() - fitted)).sqrt()
    far = pl.max_horizontal(_FAR * usual.over("gpu_name"), pl.lit(_MARGIN))
    return rows.with_columns(y=pl.col("y") - left + left.clip(-far, far))


def _linked(effects: UnitEffects) -> Iterator[Indices]:
    """Yield groups of boards that enough cells link to each other, the fastest board first."""
    for group in np.unique(effects.group):
        members = np.flatnonzero((effects.group == group) & (effects.worth >= _FEWEST_CELLS))
        if members.size > 1 and np.isfinite(effects.variances[members]).all():
            yield members[np.argsort(effects.effects[members], kind="stable")]


def _beyond(model: str, effects: UnitEffects, members: Indices, level: float) -> list[dict[str, Any]]:
    """Return the slowest of ``members`` that lie beyond the spread of the others."""
    last = members.size - max(1, (members.size - 1) // 2)
    for first in range(last, members.size):
        others = members[:first]
        apart, reach = _apart(effects, members[first], others, level)
        if apart > max(reach, np.log1p(_MARGIN)):
            break
    else:
        return []
    rows = []
    for unit in members[first:]:
        apart, reach = _apart(effects, unit, others, level)
        if apart < reach:  # slower than one that differs, but less certain
            continue
        shares = dict(zip(("slower", "low", "high"), np.expm1([apart, apart - reach, apart + reach]), strict=True))
        cells = int(effects.cells_of[unit])
        named = {"gpu_name": model, "gpu_uuid": effects.names[unit], "other": effects.names[others[0]]}
        rows.append({**named, "others": others.size, "cells": cells, **shares})
    return rows


def _apart(effects: UnitEffects, unit: int, others: Indices, level: float) -> tuple[float, float]:
    """Return by how much ``unit`` is slower than ``others`` on the logarithm, and how much chance explains."""
    own, variances = effects.effects[others], effects.variances[others]
    tau, _ = moment_variance(own, variances, np.inf)  # as if known, so that more is left for the spread
    shrunk, known = _SPREAD.shrink(np.array([tau or 0.0]), np.array([others.size - 1.0]))
    weights = 1 / (variances + shrunk)
    spread = float(shrunk[0]) * (1 + 1 / others.size)
    total = float(effects.variances[unit] + shrunk[0] + 1 / weights.sum())
    # Satterthwaite's approximation
    degrees = total**2 / (spread**2 / float(known[0]) + (total - spread) ** 2 / effects.degrees)
    reach = float(t_quantile(degrees, level)) * total**0.5
    return float(effects.effects[unit] - (weights * own).sum() / weights.sum()), reach
