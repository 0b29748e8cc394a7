"""Checks for impossible times, and for times that are less precise than they seem."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import polars as pl

from kernel_matrix.analysis.audit.boards import boards_meant
from kernel_matrix.analysis.audit.check import (
    ROW,
    WHERE,
    claimed,
    few_bits,
    figure,
    make_findings,
    micro,
    passed,
    percent,
    with_cells,
)
from kernel_matrix.analysis.sentences import sentence
from kernel_matrix.analysis.tables import Tables
from kernel_matrix.measure.grade import LIMITS
from kernel_matrix.measure.objections import FEWEST_CALLS
from kernel_matrix.model.enums import Dtype, Grade, Regime
from kernel_matrix.model.messages import CLOCK_ROOM
from kernel_matrix.platforms.data_sheets import DataSheet, all_sheets
from kernel_matrix.results.schema import CELLS

BEYOND: Final = 1.05
"""Share of the peak above which a time is impossible: figures are rounded, and memory may clock a little higher."""
CACHE_ROOM: Final = 25.0
"""Factor by which data in the last-level cache may move faster than memory moves data.

The path from a cache to an SM is 64 bytes per clock, which for all SMs of an L4 is 25 times its memory's bandwidth, the
largest such ratio among the data sheets.
"""
GRAINS: Final = (1024, 1000, 512, 500)
"""Steps, in nanoseconds, of known coarse timers and rounded files."""
_GRAIN_SHARE: Final = 0.7
"""Share of times on a step from which it is the timer's step; by chance, one time in hundreds is on it."""
_GRAIN_TIMES: Final = 10
"""Times needed to find a step."""
_COARSE: Final = 0.01
"""Step of the timer, as a share of the time, from which the time is too coarse."""
_ROUNDING: Final = 1e-4
"""Tolerance, as a share of a step: files give times as decimal fractions."""
_FEW_VALUES: Final = 3
"""Different values, up to which all calls of a session are too alike to be measured."""
_CALLS: Final = 20
"""Calls of a session needed to judge the number of its values."""

_TIMES: Final = tuple(name for name in CELLS if name.endswith("_median_ns"))
_NAMES: Final = ("candidate_median_ns", "baseline_median_ns")
_PEAKS: Final = ("gpu_name", "peak_flops_per_s", "peak_bytes_per_s", "quality_snr_db")
_CALL_KEY: Final = (*ROW, "contestant", "regime")


def with_sheets(rows: pl.LazyFrame) -> pl.LazyFrame:
    """Add ``sheet_flops_per_s``, ``sheet_bytes_per_s`` and ``cache_bytes`` from the board's data sheet.

    Rates are null where unknown. A row without the driver's name of its board has the largest values of the boards that
    its GPU's name may mean. For fp32 the larger of fp32 and tf32 counts, because it is not always recorded whether tf32
    was allowed; for an unknown dtype, the largest rate of all. A cache of unknown size is as large as the largest of
    all sheets.
    """
    named = rows.select("gpu", "gpu_name").unique().collect(engine="streaming")
    dtypes = (None, *Dtype)
    limits = [
        (gpu, board, dtype and dtype.value, _most(_rate(sheet, dtype) for sheet in sheets),
         _most(sheet.bytes_per_s for sheet in sheets), _most(map(_cache, sheets)))
        for gpu, board in named.iter_rows()
        for sheets in [_sheets(gpu, board)]
        for dtype in dtypes
    ]  # fmt: skip
    known = pl.LazyFrame(
        limits,
        schema={
            "gpu": pl.String(),
            "gpu_name": pl.String(),
            "dtype": CELLS["dtype"],
            "sheet_flops_per_s": pl.Float64(),
            "sheet_bytes_per_s": pl.Float64(),
            "cache_bytes": pl.Float64(),
        },
        orient="row",
    )
    largest = max(float(_cache(sheet) or 0) for sheet in all_sheets())
    both = rows.join(known, on=["gpu", "gpu_name", "dtype"], how="left", nulls_equal=True)
    return both.with_columns(pl.col("cache_bytes").fill_null(largest))


def _sheets(gpu: str | None, board: str | None) -> Sequence[DataSheet]:
    """Return the sheets of the board, or, if it is unknown, of all boards that the GPU's name may mean."""
    if board is None:
        return boards_meant(gpu)
    return [sheet for sheet in all_sheets() if board in sheet.product.names]


def _most(values: Iterable[float | None]) -> float | None:
    """Return the largest value; None if one is unknown, or if there is none."""
    known = list(values)
    return None if None in known else max((float(value) for value in known if value is not None), default=None)


def _rate(sheet: DataSheet, dtype: Dtype | None) -> float | None:
    rates = sheet.ops_per_s
    if dtype is None:
        return max((rate for rate in rates.values() if rate), default=None)
    if dtype is Dtype.FP32:
        return max((rate for rate in (rates["fp32"], rates["tf32"]) if rate), default=None)
    return rates.get("fp8" if dtype in {Dtype.FP8_E4M3, Dtype.FP8_E5M2} else dtype.value)


def _cache(sheet: DataSheet) -> float | None:
    """Return the size of the L2 and of a cache behind it; None if that of the L2 is unknown."""
    return None if sheet.product.l2_bytes is None else sheet.product.l2_bytes + (sheet.product.l3_bytes or 0)


def least_memory_ns(moved: pl.Expr) -> pl.Expr:
    """Return the least time, in nanoseconds, to move ``moved`` bytes; needs the columns of :func:`with_sheets`.

    As much as the last-level cache holds may be in it before the call, and moves at most :data:`CACHE_ROOM` times as
    fast; the rest comes from memory.
    """
    memory = bytes_per_s()
    return pl.max_horizontal((moved - pl.col("cache_bytes")) / memory, moved / (memory * CACHE_ROOM)) * 1e9


def bytes_per_s() -> pl.Expr:
    """Return the bandwidth of memory: the larger of the record's, which may be a measured one, and the data sheet's."""
    return pl.max_horizontal("peak_bytes_per_s", "sheet_bytes_per_s")


def least_compute_ns(flops: pl.Expr) -> pl.Expr:
    """Return the least time, in nanoseconds, of ``flops`` operations at the highest clock.

    Quantised arithmetic has none: it runs at the rate of a narrower dtype than the cell's.
    """
    rate = pl.max_horizontal("peak_flops_per_s", "sheet_flops_per_s") * CLOCK_ROOM
    return pl.when(pl.col("quality_snr_db").is_null()).then(flops / rate * 1e9)


def impossible(tables: Tables) -> pl.LazyFrame:
    """Find medians below the least time that the work takes at the device's peak (Williams et al., CACM 52, 2009).

    The bound is the longest of the times of :func:`least_memory_ns` and :func:`least_compute_ns`, and the record's own
    ``floor_ns``, which the judge knows more about.
    """
    rows = passed(tables.cells).select(*WHERE, "flops", "bytes", "floor_ns", *_PEAKS, *_NAMES)
    least = pl.max_horizontal(
        least_compute_ns(pl.col("flops")), least_memory_ns(pl.col("bytes")), pl.col("floor_ns").cast(pl.Float64)
    )
    bounded = with_sheets(rows).with_columns(least=least)
    found = []
    for column in _NAMES:
        time = pl.col(column)
        share = pl.col("least") / time
        whose = column.removesuffix("_median_ns")
        above = bounded.with_columns(share=share).filter(
            (time > 0) & (pl.col("share") > BEYOND) & pl.col("share").is_finite()
        )
        evidence = sentence(
            f"the {whose} took {{}}, but its work takes at least {{}} at peak rate ({{}} of peak)",
            micro(time), micro(pl.col("least")), percent(pl.col("share")),
        )  # fmt: skip
        found.append(make_findings(above, evidence, worst=pl.col("share")))
    return pl.concat(found)


def impossible_rates(tables: Tables) -> pl.LazyFrame:
    """Find rates that a file states without the work, and that the device cannot reach.

    Either the time is too short, or the file counts bytes or operations that need not be moved or done.
    """
    time, stated = pl.col("candidate_median_ns"), {"bytes": "bytes_per_s", "flops": "flops_per_s"}
    columns = (*WHERE, *_PEAKS, *stated, *stated.values(), "candidate_median_ns")
    rows = with_sheets(passed(tables.cells).select(columns).filter(time > 0))
    moved, done = (pl.col(rate) * time / 1e9 for rate in stated.values())
    bounds = {"bytes": least_memory_ns(moved), "flops": least_compute_ns(done)}
    of_bytes = sentence(
        "{} GB/s are stated over {}, for {} MiB; with {} MiB in its cache and {} GB/s from memory that takes {}",
        figure(pl.col("bytes_per_s") / 1e9), micro(time), figure(moved / 2**20), figure(pl.col("cache_bytes") / 2**20),
        figure(bytes_per_s() / 1e9), micro(pl.col("least")),
    )  # fmt: skip
    of_flops = sentence(
        "{} TFLOP/s are stated over {}; at the device's highest rate that work takes {}",
        figure(pl.col("flops_per_s") / 1e12), micro(time), micro(pl.col("least")),
    )  # fmt: skip
    found = []
    for work, evidence in (("bytes", of_bytes), ("flops", of_flops)):
        share = pl.col("least") / time
        above = rows.with_columns(least=bounds[work]).filter(
            pl.col(work).is_null() & (share > BEYOND) & share.is_finite()
        )
        found.append(make_findings(above, evidence, worst=share))
    return pl.concat(found)


def no_bound(tables: Tables) -> pl.LazyFrame:
    """Find devices without a known peak, for which impossible times cannot be found."""
    rows = with_sheets(passed(tables.cells).select("gpu", "gpu_name", "dtype", "peak_bytes_per_s"))
    lacking = rows.filter(pl.coalesce("peak_bytes_per_s", "sheet_bytes_per_s").is_null())
    unknown = lacking.group_by("gpu", "gpu_name").agg(pl.len().alias("rows"))
    name = pl.col("gpu_name").fill_null("a device without a name")
    evidence = sentence("{} has no peak in its records or a data sheet: {} times have no bound", name, "rows")
    return make_findings(unknown, evidence, count=pl.col("rows"))


def no_numbers(tables: Tables) -> pl.LazyFrame:
    """Find times and speed-ups that are NaN, infinite, zero or negative."""
    columns = (*_TIMES, "speedup")
    wrong = {name: ~pl.col(name).is_finite() | (pl.col(name) <= 0) for name in columns}
    parts = [pl.when(bad).then(sentence(f"{name} is {{}}", pl.col(name))) for name, bad in wrong.items()]
    rows = tables.cells.filter(pl.any_horizontal(bad.fill_null(value=False) for bad in wrong.values()))
    in_cells = make_findings(rows, pl.concat_str(parts, separator=", ", ignore_nulls=True))
    calls = tables.samples.filter((pl.col("device_ns") <= 0) & pl.col("discarded").is_null())
    by_row = calls.group_by(ROW).agg(pl.len().alias("calls"), pl.col("device_ns").min().alias("least"))
    evidence = sentence("{} timed calls took no time; the least is {} ns", "calls", "least")
    return pl.concat([in_cells, make_findings(with_cells(by_row, tables), evidence, count=pl.col("calls"))])


def few_samples(tables: Tables) -> pl.LazyFrame:
    """Find medians of fewer than ten calls."""
    fewest = pl.min_horizontal("candidate_samples", "baseline_samples")
    rows = passed(tables.cells).with_columns(fewest=fewest).filter(pl.col("fewest") < FEWEST_CALLS)
    by_cell = rows.group_by(WHERE).agg(pl.col("fewest").min(), pl.len().alias("sessions"))
    evidence = sentence(f"as few as {{}} timed calls in {{}} sessions; {FEWEST_CALLS} are needed", "fewest", "sessions")
    return make_findings(by_cell, evidence, count=pl.col("sessions"), worst=-pl.col("fewest"))


def coarse_timer(tables: Tables) -> pl.LazyFrame:
    """Find GPUs whose times are whole multiples of a step that is more than 1 % of some of them."""
    found = timer_steps(tables, ("gpu",))
    share = pl.col("number") / pl.col("times")
    evidence = sentence(
        "{} of {} times are whole multiples of {} ns; for {} that is more than 1 % of the time, the least is {}",
        percent(share), "times", "step", "coarse", micro(pl.col("least")),
    )  # fmt: skip
    return make_findings(found.filter(pl.col("coarse") > 0), evidence, count=pl.col("coarse"))


def timer_steps(tables: Tables, by: Sequence[str]) -> pl.LazyFrame:
    """Find the ``step`` in nanoseconds that most times of each group ``by`` are multiples of; no row if there is none.

    ``number`` of the ``times`` are on it, for ``coarse`` of them it is more than 1 %, and ``least`` is the shortest.
    """
    time, step = pl.col("time"), pl.col("step")
    times = passed(tables.cells).select(*by, time=claimed("candidate")).filter(time > 0)
    rows = times.with_columns(grain=grain(time))
    # A multiple of 1000 is one of 500 too: report the largest step that enough of a GPU's times are on.
    on = pl.LazyFrame(
        [(grain, step) for grain in GRAINS for step in GRAINS if grain % step == 0], ("grain", "step"), orient="row"
    )
    totals = rows.group_by(by).agg(pl.len().alias("times"), time.min().alias("least"))
    on_step = rows.join(on.cast(pl.Int32), on="grain").group_by(*by, "step").agg(
        pl.len().alias("number"), (time * _COARSE < step).sum().alias("coarse")
    )  # fmt: skip
    found = on_step.join(totals, on=by, nulls_equal=True)
    enough = found.filter((pl.col("number") >= pl.col("times") * _GRAIN_SHARE) & (pl.col("times") >= _GRAIN_TIMES))
    return enough.sort("step", descending=True).unique(by, keep="first", maintain_order=True)


def grain(time: pl.Expr) -> pl.Expr:
    """Find the largest of :data:`GRAINS` that a time in nanoseconds is a multiple of, within rounding; else null."""
    on = [((time / step) - (time / step).round()).abs() < _ROUNDING for step in GRAINS]
    return pl.coalesce(pl.when(is_on).then(pl.lit(step, pl.Int32)) for step, is_on in zip(GRAINS, on, strict=True))


def few_values(tables: Tables) -> pl.LazyFrame:
    """Find sessions in which many calls have at most three different times: a coarse timer, or invented times."""
    calls = tables.samples.filter(pl.col("discarded").is_null() & (pl.col("regime") == Regime.COLD.value))
    time = pl.col("device_ns")
    rough = calls.group_by(_CALL_KEY).agg(pl.len().alias("calls"), few_bits(time).alias("bits"))
    likely = rough.filter((pl.col("calls") >= _CALLS) & (pl.col("bits").bitwise_count_ones() <= _FEW_VALUES))
    exact = calls.join(likely.select(_CALL_KEY), on=_CALL_KEY, how="semi").group_by(_CALL_KEY)
    found = exact.agg(
        pl.len().alias("calls"), time.n_unique().alias("values"), time.min().alias("least"), time.max().alias("most")
    )
    few = with_cells(found.filter(pl.col("values") <= _FEW_VALUES), tables)
    evidence = sentence(
        "{} calls of {} have {} different times, from {} to {} ns", "calls", "contestant", "values", "least", "most"
    )
    return make_findings(few, evidence, count=pl.col("calls"), worst=-pl.col("values").cast(pl.Int64))


def drift(tables: Tables) -> pl.LazyFrame:
    """Find cells during which the machine or the code changed by more than grade B allows."""
    limit = LIMITS[Grade.B]
    kinds = ("machine_drift", "code_drift", "anchor_drift")
    largest = pl.max_horizontal(pl.col(kind).abs() for kind in kinds)
    rows = passed(tables.cells).with_columns(largest=largest).filter(pl.col("largest") > limit)
    by_cell = rows.group_by(WHERE).agg(
        pl.col("largest").max(), *(pl.col(kind).abs().max() for kind in kinds), pl.len().alias("rows")
    )
    parts = [pl.when(pl.col(kind) > limit).then(sentence(f"{kind} {{}}", percent(pl.col(kind)))) for kind in kinds]
    text = pl.concat_str(parts, separator=", ", ignore_nulls=True)
    evidence = sentence(f"{{}}; {100 * limit:g} % is the limit of grade B", text)
    return make_findings(by_cell, evidence, count=pl.col("rows"), worst=pl.col("largest"))
