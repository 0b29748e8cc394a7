"""The noise of each cell, and the sessions and samples needed for a wanted precision."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import polars as pl

from kernel_matrix.analysis.components import Array
from kernel_matrix.analysis.levels import MEDIAN_COSTS
from kernel_matrix.analysis.outcomes import aggregate
from kernel_matrix.analysis.quantiles import normal_quantile
from kernel_matrix.analysis.questions import Answer
from kernel_matrix.analysis.timed_sessions import TimedSessions
from kernel_matrix.analysis.variance_prior import fit_prior
from kernel_matrix.analysis.within import WITHIN
from kernel_matrix.measure.intervals import t_quantile
from kernel_matrix.measure.timed import CANDIDATE

WANTED: Final = (0.001, 0.005, 0.01, 0.02)
"""Half-widths of a 95 % interval for which the needed sessions are computed."""
_COLUMNS: Final = {f"sessions_for_{100 * width:g}_percent": width for width in WANTED}
"""Column → its half-width."""
_NOISE_OF: Final = (CANDIDATE, "speedup")
_MOST: Final = 2000
"""Sessions up to which Student's t is used; for more, the normal quantile is close enough."""
_UNKNOWN: Final = "one session: no noise is known"
_OTHERS: Final = "one session: as in the other cells"
_MEANINGS: Final = {
    "sessions": "Sessions that passed and were timed.",
    "nights": "Nights they are from.",
    "units": "Boards they ran on.",
    "sd_time_percent": "Standard deviation of the log of the candidate's session medians, percent.",
    "sd_speedup_percent": "The same for the speed-up, whose two times come from the same session.",
    "sd_within_percent": "Standard deviation of the log of single calls within blocks, percent.",
    "noise_from": "The sessions between which the noise was measured; with one session, the other cells' noise is "
    "assumed, if there are twenty (Smyth 2004).",
    "half_width_percent": "Half-width of the 95 % interval with this number of sessions, percent; of the speed-up, or "
    "of the time where there is no baseline.",
    "samples_per_session": "Calls per session that give the most precision for the time spent: "
    "√(cost of a session ÷ cost of a call · σ²_sample ÷ σ²_session) (Kalibera and Jones 2013).",
    "session_cost_s": "Seconds of a session without its timed calls: its share of the record's total, less its calls.",
    "call_cost_s": "Seconds of a timed call with its preparation: a block's duration over its calls.",
}


def noise(cells: pl.LazyFrame, measured: TimedSessions, sums: pl.DataFrame) -> Answer:
    """Compute each cell's noise, and the sessions and samples needed for a wanted precision."""
    found = _spreads(cells, measured, sums).with_columns(*_noise_columns(), *_best_samples())
    deviation, degrees = (np.asarray(found[name].cast(pl.Float64).to_numpy()) for name in ("_noise", "_degrees"))
    prior = fit_prior(deviation**2, np.nan_to_num(degrees))
    if prior is not None:
        unknown = np.isnan(deviation)
        deviation = np.where(unknown, math.sqrt(prior.variance), deviation)
        degrees = np.where(unknown, min(prior.degrees, prior.total), degrees)
        found = found.with_columns(noise_from=pl.col("noise_from").replace({_UNKNOWN: _OTHERS}))
    half_width = pl.Series(
        "half_width_percent", 100 * _half_width(deviation, degrees, found["sessions"].cast(pl.Float64).to_numpy())
    )
    needed = [
        pl.Series(name, sessions_needed(deviation, width), nan_to_null=True).cast(pl.Int64)
        for name, width in _COLUMNS.items()
    ]
    others = (name for name in _MEANINGS if name != half_width.name)
    table = found.select("cell", *others, half_width.fill_nan(None), *needed)
    table = measured.cells.join(table, on="cell").drop("cell")
    single = table["sd_time_percent"].null_count()
    assumed = "that of the other cells is assumed" if prior is not None else "it is unknown"
    return Answer(
        name="noise",
        title="Noise of each cell, and the cost of precision",
        table=table,
        meanings=_MEANINGS
        | {name: f"Sessions for a 95 % interval of ± {100 * width:g} %" for name, width in _COLUMNS.items()},
        notes=[
            *(
                [f"{single} of {table.height} cells have one session, which shows no noise; {assumed}."]
                if single
                else []
            ),
            "A standard deviation from three sessions may be off by a factor of six: pool cells when planning.",
        ],
    )


def _spreads(cells: pl.LazyFrame, measured: TimedSessions, sums: pl.DataFrame) -> pl.DataFrame:
    """Compute per cell the spread of all sessions, and of those of a night on a unit; its samples; its cost."""
    values = measured.values
    logs = values.lazy().select(
        "cell",
        *(f"log_{of}" for of in _NOISE_OF),
        *(pl.lit(None, pl.Float64).alias(f"_sd_{of}") for of in _NOISE_OF),
        sessions=pl.lit(1, pl.Int32),
    )
    spreads = aggregate(
        logs,
        ("cell",),
        *(pl.col(f"log_{of}").first() for of in _NOISE_OF),
        *(pl.col(f"log_{of}").std().alias(f"_sd_{of}") for of in _NOISE_OF),
        pl.col("sessions").sum(),
    ).collect()
    residual = pl.when(pl.col("degrees_3") > 0).then((pl.col("squares_3") / pl.col("degrees_3")).sqrt())
    for of in _NOISE_OF:
        own = sums.filter((pl.col("of") == of) & (pl.col("degrees_3") > 0))
        spreads = spreads.join(own.select("cell", residual.alias(f"_within_night_{of}")), on="cell", how="left")
    inside = sums.filter(pl.col("of") == CANDIDATE).select("cell", "nights", "units", "squares_3", "degrees_3", *WITHIN)
    spreads = spreads.join(inside, on="cell", how="left", suffix="_of_samples")
    return spreads.join(_costs(cells, values), on="cell", how="left")


def _noise_columns() -> list[pl.Expr]:
    """Choose a cell's noise: between sessions of one night on one unit if it has several, else between all."""
    time, speed = (pl.coalesce(f"_within_night_{of}", f"_sd_{of}") for of in _NOISE_OF)
    of_samples = (pl.col("sample_squares") / pl.col("sample_degrees")).sqrt()
    return [
        pl.coalesce(speed, time).alias("_noise"),
        pl.when(pl.coalesce(speed, time).is_not_null()).then(pl.col("sessions") - 1).alias("_degrees"),
        (100 * time).alias("sd_time_percent"),
        (100 * speed).alias("sd_speedup_percent"),
        pl.when(pl.col("sample_degrees") > 0).then(100 * of_samples).alias("sd_within_percent"),
        pl.when(pl.col(f"_within_night_{CANDIDATE}").is_not_null())
        .then(pl.lit("sessions of one night on one unit"))
        .when(pl.col(f"_sd_{CANDIDATE}").is_not_null())
        .then(pl.lit("sessions of different nights or units"))
        .otherwise(pl.lit(_UNKNOWN))
        .alias("noise_from"),
    ]


def sessions_needed(deviation: Array, half_width: float) -> Array:
    """Compute the sessions needed for a 95 % t interval of ± ``half_width`` around a geometric mean.

    The least n ≥ 2 with t(0.975, n − 1) · deviation / √n ≤ log(1 + half_width), with the standard deviation of the
    sessions' logarithms; NaN for NaN.
    """
    count = np.arange(2, _MOST + 1, dtype=np.float64)
    reach = t_quantile(count - 1) / np.sqrt(count)
    with np.errstate(divide="ignore"):
        wanted = math.log1p(half_width) / deviation
        beyond = np.ceil((normal_quantile() / wanted) ** 2)
    place = np.searchsorted(-reach, -wanted * (1 + 1e-12), side="left")
    needed = np.where(place < len(count), count[np.minimum(place, len(count) - 1)], np.maximum(beyond, _MOST + 1))
    return np.where(np.isnan(deviation), np.nan, needed)


def _half_width(deviation: Array, degrees: Array, count: Array) -> Array:
    known = degrees > 0
    half = np.expm1(t_quantile(np.where(known, degrees, 1.0)) * deviation / np.sqrt(count))
    return np.where(known, half, np.nan)


def _costs(cells: pl.LazyFrame, values: pl.DataFrame) -> pl.DataFrame:
    """Compute the seconds of each cell's records; those of a record with several workloads are divided among them."""
    spent = cells.select("record", "total_s").drop_nulls().filter(pl.col("record").is_first_distinct()).collect()
    ran = values.select("cell", "record").unique()
    shared = ran.join(ran.group_by("record").agg(pl.len().alias("_cells")), on="record").join(spent, on="record")
    return shared.group_by("cell").agg((pl.col("total_s") / pl.col("_cells")).sum().alias("spent_s"))


def _best_samples() -> list[pl.Expr]:
    """Compute the cheapest samples per session for a given precision, and the two costs it depends on."""
    call = pl.col("call_ns") / pl.col("samples") / 1e9
    session = (pl.col("spent_s") - pl.col("call_ns") / 1e9) / pl.col("sessions")
    of_samples = pl.col("sample_squares") / pl.col("sample_degrees")
    of_sessions = pl.col("squares_3") / pl.col("degrees_3") - MEDIAN_COSTS * of_samples / (
        pl.col("samples") / pl.col("sessions_of_samples")
    )
    known = (call > 0) & (session > 0) & (pl.col("sample_degrees") > 0) & (pl.col("degrees_3") > 0) & (of_sessions > 0)
    best = (session / call * of_samples / of_sessions).sqrt().ceil().clip(1, 1e9)
    return [
        pl.when(known).then(best).cast(pl.Int64).alias("samples_per_session"),
        pl.when(session > 0).then(session).alias("session_cost_s"),
        pl.when(call > 0).then(call).alias("call_cost_s"),
    ]
