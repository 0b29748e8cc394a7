"""GPUs, and cells of a GPU, that are not as fast beside the others as their data sheets say.

Each time is taken times the rate of its GPU that bounds it: peak FLOP/s of the dtype where the row says ``compute``,
else bytes/s of its memory. On the scale of logarithms that is one number per problem plus how well a GPU does, if
sheets are right; what is left is held against its median by a robust z: distance ÷ (1.4826 × median absolute deviation)
(Iglewicz and Hoaglin, How to Detect and Handle Outliers, 1993).
"""

from __future__ import annotations

from typing import Final

import polars as pl

from kernel_matrix.analysis.audit.check import WHERE, figure, micro, passed, told
from kernel_matrix.analysis.audit.times import with_sheets
from kernel_matrix.analysis.sentences import sentence
from kernel_matrix.analysis.tables import Tables
from kernel_matrix.measure.roofline import COMPUTE

_NORMAL: Final = 1.4826
_Z: Final = 3.5
"""What Iglewicz and Hoaglin call an outlier."""
_Z_CELL: Final = 8.0
"""Of the thousands of cells of a table many are beyond 3.5."""
_FACTOR_GPU: Final = 1.5
_FACTOR_CELL: Final = 3.0
_GPUS: Final = 4
"""Fewer cannot tell which one is odd."""
_SPREAD: Final = 0.05
"""Smallest deviation that is believed: GPUs that agree to the per mille are so by chance."""


def odd_gpu(tables: Tables) -> pl.LazyFrame:
    """A GPU all of whose times are off by a factor against those of the others."""
    by_gpu = _left(tables).group_by("gpu").agg(pl.col("left").median().alias("off"), pl.len().alias("times"))
    others = by_gpu.select(middle=pl.col("off").median(), gpus=pl.len())
    placed = by_gpu.join(others, how="cross").with_columns(off=pl.col("off") - pl.col("middle"))
    spread = placed.select(spread=pl.col("off").abs().median() * _NORMAL)
    found = placed.join(spread, how="cross").with_columns(
        z=pl.col("off") / pl.max_horizontal("spread", pl.lit(_SPREAD)), factor=pl.col("off").abs().exp()
    )
    odd = (pl.col("gpus") >= _GPUS) & (pl.col("z").abs() > _Z) & (pl.col("factor") > _FACTOR_GPU)
    evidence = sentence(
        "{}× {} than its data sheet has it beside {} other GPUs, over {} times; robust z {}",
        figure(pl.col("factor"), digits=3), _direction("off"), pl.col("gpus") - 1, "times",
        figure(pl.col("z"), digits=3),
    )  # fmt: skip
    return told(found.filter(odd), evidence, count=pl.col("times"), worst=pl.col("z").abs())


def odd_cell(tables: Tables) -> pl.LazyFrame:
    """One time of a GPU that is off by a factor against that GPU's other times and other GPUs' times of the same."""
    left = _left(tables)
    middle = left.group_by("gpu").agg(pl.col("left").median().alias("usual"))
    own = left.join(middle, on="gpu").with_columns(off=pl.col("left") - pl.col("usual"))
    # Where a GPU is the middle one itself nothing is left, which says nothing about how far it usually is off.
    apart = own.filter(pl.col("left") != 0)
    spread = apart.group_by("gpu").agg((pl.col("off").abs().median() * _NORMAL).alias("spread"))
    found = own.join(spread, on="gpu").with_columns(
        z=pl.col("off") / pl.max_horizontal("spread", pl.lit(_SPREAD)), factor=pl.col("off").abs().exp()
    )
    odd = (pl.col("gpus") >= _GPUS) & (pl.col("z").abs() > _Z_CELL) & (pl.col("factor") > _FACTOR_CELL)
    evidence = sentence(
        "{}: {}× {} than on {} other GPUs, by data sheets and beside the rest of this GPU; robust z {}",
        micro(pl.col("t")), figure(pl.col("factor"), digits=3), _direction("off"), pl.col("gpus") - 1,
        figure(pl.col("z"), digits=3),
    )  # fmt: skip
    return told(found.filter(odd), evidence, worst=pl.col("z").abs())


def _left(tables: Tables) -> pl.LazyFrame:
    """Per GPU and cell: the logarithm of its time × rate, less the median over GPUs of the same cell."""
    time = pl.col("candidate_median_ns")
    rows = passed(tables.cells).filter((time > 0) & time.is_finite())
    known = with_sheets(
        rows.select(*WHERE, "gpu_name", "bound", "candidate_median_ns", "peak_flops_per_s", "peak_bytes_per_s")
    )
    rate = pl.when(pl.col("bound") == COMPUTE).then(pl.coalesce("sheet_flops_per_s", "peak_flops_per_s")).otherwise(
        pl.coalesce("sheet_bytes_per_s", "peak_bytes_per_s")
    )  # fmt: skip
    by_cell = known.with_columns(rate=rate).filter(pl.col("rate").is_not_null()).group_by(WHERE).agg(
        time.median().alias("t"), pl.col("rate").first()
    )  # fmt: skip
    scaled = by_cell.with_columns(scaled=(pl.col("t") * pl.col("rate")).log())
    key = [name for name in WHERE if name != "gpu"]
    middle = scaled.group_by(key).agg(pl.col("scaled").median().alias("usual_cell"), pl.len().alias("gpus"))
    both = scaled.join(middle, on=key, nulls_equal=True).filter(pl.col("gpus") > 1)
    return both.with_columns(left=pl.col("scaled") - pl.col("usual_cell")).select(*WHERE, "t", "gpus", "left")


def _direction(name: str) -> pl.Expr:
    return pl.when(pl.col(name) > 0).then(pl.lit("slower")).otherwise(pl.lit("faster"))
