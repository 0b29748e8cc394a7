"""Choice of the cells and samples on the page: all cells up to a limit, samples of the slowest, fastest, noisiest."""

from __future__ import annotations

from typing import Final

import polars as pl

from kernel_matrix.analysis.tables import Tables
from kernel_matrix.measure.timed import CANDIDATE
from kernel_matrix.model.enums import Fault, Grade, Regime
from kernel_matrix.results.descriptions import describe_reason

MOST_CELLS: Final = 20_000
"""Outcomes in the page's table. With more, unexpected failures and extreme speed-ups are kept."""
MOST_SAMPLED: Final = 48
"""Outcomes whose samples are on the page."""
MOST_SAMPLES: Final = 300
"""Samples of one side of one outcome; of more, every second, third, … is taken."""
MOST_READINGS: Final = 400
"""Telemetry readings of one record."""

SHORT: Final = 12
"""Characters of a digest on the page."""
_LONGEST: Final = 400
"""Characters of a message."""
FROM_OUTCOMES: Final = (
    "record", "cell_id", "workload", "problem", "ranks", "candidate", "gpu", "toolchain", "dtype",
    "category", "level", "source", "language", "origin_method", "origin_model", "origin_round", "tier", "expect",
    "status", "stage", "fault", "message", "verdict", "verdict_reason", "verdict_figure", "grade", "grade_reason",
    "speedup", "speedup_low", "speedup_high", "candidate_ns", "baseline_ns", "sessions",
    "spread_within", "spread_between", "machine_drift", "code_drift", "share_of_peak", "bound", "floor_ns",
    "exclusive", "clock_state", "gpu_name", "gpu_uuid", "driver", "hostname", "engine", "image_id",
    "torch", "triton", "cuda", "matrix", "started_at", "compile_s", "total_s", "candidate_kind",
    "candidate_sha256", "problem_sha256",
)  # fmt: skip
_FIRST: Final = (
    "registers_max", "spill_bytes_max", "exclusive_reason", "clock_reason", "sm_clock_mhz", "power_w",
    "temperature_max_c", "peak_flops_per_s", "peak_bytes_per_s", "collective_kind",
    "code_lines", "code_complexity", "code_maintainability",
    "energy_ratio_mean", "energy_ratio_low", "energy_ratio_high",
)  # fmt: skip
_MOST: Final = ("candidate_memory_bytes", "baseline_memory_bytes")
_MEDIANS: Final = (
    "flops_per_s", "bytes_per_s", "intensity", "worst_error_ratio",
    "algorithm_bytes_per_s", "bus_bytes_per_s", "link_share_of_peak",
    "launches_per_call", "eager_launches", "compile_launches",
    "candidate_joules_per_call", "baseline_joules_per_call", "flops_per_joule",
)  # fmt: skip
_UNION: Final = ("labels", "findings", "warnings")

SAMPLED: Final = ("row", "session", "block", "side", "us", "discarded")
"""Columns of the page's samples; ``row`` is a place in the page's cells, ``us`` the device time of one call, µs."""


def choose_cells(outcomes: pl.DataFrame, tables: Tables) -> pl.DataFrame:
    """Choose up to :data:`MOST_CELLS` outcomes, with all columns that a cell's page shows.

    Unexpected failures come first and fill at most half of the rows, then the speed-ups furthest from 1. The column
    ``sampled`` is true for outcomes whose samples are on the page.
    """
    interest = pl.col("speedup").log().abs()
    unexpected = (pl.col("fault").cast(pl.String) != Fault.NONE.value) & (
        pl.col("status").cast(pl.String) != pl.col("expect").cast(pl.String)
    ).fill_null(value=True)
    kept = outcomes.lazy()
    if outcomes.height > MOST_CELLS:
        failed = kept.filter(unexpected).sort("cell_id", "workload").head(MOST_CELLS // 2)
        rest = kept.filter(~unexpected).sort(
            interest, "cell_id", "workload", descending=[True, False, False], nulls_last=True
        )
        kept = pl.concat([failed, rest]).head(MOST_CELLS)
    return describe_cells(kept.collect(), tables)


def describe_cells(outcomes: pl.DataFrame, tables: Tables) -> pl.DataFrame:
    """Return all ``outcomes`` by problem, with the columns that a cell's page shows; see :func:`choose_cells`."""
    rows = outcomes.select(FROM_OUTCOMES).sort("problem", "ranks", "workload", "candidate", "gpu", "toolchain", "dtype")
    more = _more(tables.cells, rows["record"].unique())
    shown = rows.join(more, on=["record", "workload"], how="left", nulls_equal=True, maintain_order="left")
    return (
        shown.with_columns(
            pl.col("message").str.slice(0, _LONGEST),
            pl.col("cell_id", "candidate_sha256", "problem_sha256").str.slice(0, SHORT),
            pl.col("image_id").str.slice(0, 19),
            (pl.col("candidate_ns", "baseline_ns", "floor_ns") / 1000).name.replace("_ns$", "_us"),
            (pl.col("flops_per_s") / 1e12).alias("tflops_per_s"),
            (pl.col("bytes_per_s", "algorithm_bytes_per_s", "bus_bytes_per_s") / 1e9).name.replace("bytes", "gbytes"),
            verdict_why=_whys(shown),
            sampled=flag_sampled(shown),
        )
        .rename({"candidate_kind": "kind"})
        .drop("verdict_figure", "candidate_ns", "baseline_ns", "floor_ns", "flops_per_s", "bytes_per_s")
        .drop("algorithm_bytes_per_s", "bus_bytes_per_s")
    )


def read_samples(cells: pl.DataFrame, tables: Tables) -> pl.DataFrame:
    """Read the samples of the ``sampled`` rows of ``cells``, thinned evenly, with the columns :data:`SAMPLED`."""
    wanted = cells.with_row_index("row").filter("sampled").select("row", "record", "workload")
    side = pl.col("contestant").cast(pl.String)
    found = (
        tables.samples.filter(
            pl.col("record").is_in(wanted["record"].unique().to_list()),
            pl.col("regime").cast(pl.String) == Regime.COLD.value,
        )
        .join(wanted.lazy(), on=["record", "workload"], how="inner")
        .select(
            "row",
            "session",
            "block",
            "index",
            side=pl.when(side == CANDIDATE).then(pl.lit("candidate")).otherwise(side),
            us=pl.col("device_ns") / 1000 / pl.col("calls_per_sample").fill_null(1).clip(lower_bound=1),
            discarded=pl.col("discarded").is_not_null(),
        )
        .collect(engine="streaming")
    )
    step = (pl.len().over("row", "side") / MOST_SAMPLES).ceil()
    place = pl.int_range(pl.len()).over("row", "side")
    return (
        found.sort("row", "session", "block", "side", "index")
        .filter(place % step.cast(pl.Int64).clip(lower_bound=1) == 0)
        .select(SAMPLED)
    )


def read_telemetry(cells: pl.DataFrame, records: pl.DataFrame, telemetry: pl.LazyFrame | None) -> pl.DataFrame:
    """Read the telemetry of the sampled rows of ``cells``: seconds ``s``, clock, power and temperature.

    ``records`` maps ``record`` to the ``run_id``, full ``cell_id`` and ``attempt`` by which telemetry names it.
    """
    columns = ("sm_clock_mhz", "power_w", "temperature_c")
    if telemetry is None:
        return pl.DataFrame(schema={"row": pl.UInt32, "s": pl.Float64, **dict.fromkeys(columns, pl.Float64)})
    wanted = cells.with_row_index("row").filter("sampled").select("row", "record").unique("record", keep="first")
    keys = records.join(wanted, on="record", how="inner").drop("record")
    found = (
        telemetry.join(keys.lazy(), on=["run_id", "cell_id", "attempt"], how="inner")
        .select("row", "at_ns", *(pl.col(name).cast(pl.Float64) for name in columns))
        .collect(engine="streaming")
        .sort("row", "at_ns")
    )
    step = (pl.len().over("row") / MOST_READINGS).ceil().cast(pl.Int64).clip(lower_bound=1)
    return found.filter(pl.int_range(pl.len()).over("row") % step == 0).select(
        "row", ((pl.col("at_ns") - pl.col("at_ns").min().over("row")) / 1e9).alias("s"), *columns
    )


def _more(cells: pl.LazyFrame, records: pl.Series) -> pl.DataFrame:
    """Read columns that outcomes lack: one row per record and workload of ``records``."""
    few = records.len() < MOST_CELLS // 2
    kept = cells.filter(pl.col("record").is_in(records.to_list())) if few else cells
    return (
        kept.join(records.to_frame("record").lazy(), on="record", how="semi")
        .group_by("record", "workload")
        .agg(
            *(pl.col(name).first() for name in _FIRST),
            *(pl.col(name).max() for name in _MOST),
            *(pl.col(name).median() for name in _MEDIANS),
            *(pl.col(name).explode().drop_nulls().unique().sort() for name in _UNION),
        )
        .collect(engine="streaming")
    )


def _whys(rows: pl.DataFrame) -> pl.Series:
    """Write the reason of each verdict with its figure."""
    return pl.Series(
        [describe_reason(*why) for why in rows.select("verdict_reason", "verdict_figure").iter_rows()], dtype=pl.String
    )


def flag_sampled(rows: pl.DataFrame) -> pl.Series:
    """Flag all timed rows up to :data:`MOST_SAMPLED`; of more, a third each of the slowest, fastest and noisiest."""
    timed = rows.with_row_index("row").filter(pl.col("sessions") > 0)
    third = MOST_SAMPLED // 3
    noise = pl.max_horizontal(pl.col("spread_within").fill_null(0), pl.col("spread_between").fill_null(0))
    noisy = timed.filter(pl.col("grade").cast(pl.String) == Grade.C.value).sort(noise, "row", descending=[True, False])
    by_speed = timed.drop_nulls("speedup").sort("speedup", "row")
    picked = [by_speed.head(third), by_speed.tail(third), noisy.head(third)]
    if timed.height <= MOST_SAMPLED:
        picked = [timed]
    places = pl.concat([part["row"] for part in picked]).cast(pl.Int64).to_list()
    return pl.Series("sampled", pl.int_range(rows.height, eager=True).is_in(places))
