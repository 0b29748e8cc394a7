"""Checks for GPUs, and cells of a GPU, whose speed relative to the others is odd.

Of a whole GPU, data sheets say what to expect: each time is multiplied by the rate of its GPU that bounds it, peak
FLOP/s of the dtype where the row is bound by ``compute``, bytes/s of the link where by ``link``, else bytes/s of its
memory. If the sheets are right, the logarithm is one number per problem plus one per GPU.

Of a single cell, the other cells of its GPU and the other GPUs' times of the cell say it, without a data sheet:
:func:`polished` takes an effect of the cell and one of the GPU from the logarithm of each time (median polish; Tukey,
Exploratory Data Analysis, 1977).

Residuals are compared with their median by a robust z: distance ÷ (1.4826 × median absolute deviation) (Iglewicz and
Hoaglin, How to Detect and Handle Outliers, 1993).
"""

from __future__ import annotations

from typing import Final

import polars as pl

from kernel_matrix.analysis.audit.check import WHERE, figure, make_findings, micro, passed
from kernel_matrix.analysis.audit.times import with_sheets
from kernel_matrix.analysis.quantiles import NORMAL_MAD
from kernel_matrix.analysis.sentences import sentence
from kernel_matrix.analysis.tables import Tables
from kernel_matrix.measure.roofline import COMPUTE, LINK

_Z: Final = 3.5
"""Limit for an outlier after Iglewicz and Hoaglin."""
_Z_CELL: Final = 8.0
"""Limit for cells: of thousands of cells, many are beyond 3.5."""
_Z_FAR: Final = 5.0
"""Limit for cells that are off by more than :data:`_FACTOR_FAR`."""
_FACTOR_GPU: Final = 1.5
"""Factor by which a GPU must also be off: where all are nearly equal, a tiny difference is an outlier."""
_FACTOR_CELL: Final = 6.0
"""The same for a cell: between GPUs without a fault, single cells of published sets differ by up to 5.6×."""
_FACTOR_FAR: Final = 15.0
_GPUS: Final = 4
"""GPUs needed to decide which one's data sheet is contradicted."""
_GPUS_OF_CELL: Final = 3
"""GPUs needed to decide which one's time of a cell is the outlier."""
_ROUNDS: Final = 3
"""Rounds of the polish; later ones change residuals by less than 1 %."""
_SPREAD: Final = 0.05
"""Smallest deviation used: GPUs that agree better do so by chance."""


def odd_gpu(tables: Tables) -> pl.LazyFrame:
    """Find GPUs whose times are off by a factor relative to the other GPUs."""
    by_gpu = _residuals(tables).group_by("gpu").agg(pl.col("left").median().alias("off"), pl.len().alias("times"))
    others = by_gpu.select(middle=pl.col("off").median(), gpus=pl.len())
    placed = by_gpu.join(others, how="cross").with_columns(off=pl.col("off") - pl.col("middle"))
    spread = placed.select(spread=pl.col("off").abs().median() * NORMAL_MAD)
    found = placed.join(spread, how="cross").with_columns(
        z=pl.col("off") / pl.max_horizontal("spread", pl.lit(_SPREAD)), factor=pl.col("off").abs().exp()
    )
    odd = (pl.col("gpus") >= _GPUS) & (pl.col("z").abs() > _Z) & (pl.col("factor") > _FACTOR_GPU)
    evidence = sentence(
        "{}× {} than its data sheet says relative to {} other GPUs, over {} times; robust z {}",
        figure(pl.col("factor"), digits=3), _direction("off"), pl.col("gpus") - 1, "times",
        figure(pl.col("z"), digits=3),
    )  # fmt: skip
    return make_findings(found.filter(odd), evidence, count=pl.col("times"), worst=pl.col("z").abs())


def odd_cell(tables: Tables) -> pl.LazyFrame:
    """Find single times that are off by a factor given the GPU's other times and other GPUs' times of the cell."""
    left = polished(tables)
    # Where the GPU itself is the median of the cell the residual is 0, which would underestimate its spread.
    apart = pl.col("left").filter(pl.col("left") != 0).abs().median()
    spread = left.group_by("gpu").agg(spread=pl.max_horizontal(apart * NORMAL_MAD, pl.lit(_SPREAD)))
    found = left.join(spread, on="gpu").with_columns(
        z=pl.col("left") / pl.col("spread"), factor=pl.col("left").abs().exp()
    )
    z, factor = pl.col("z").abs(), pl.col("factor")
    odd = ((z > _Z_CELL) & (factor > _FACTOR_CELL)) | ((z > _Z_FAR) & (factor > _FACTOR_FAR))
    evidence = sentence(
        "{}: {}× {} than its times on {} other GPUs and this GPU's other cells imply; robust z {}",
        micro(pl.col("t")), figure(factor, digits=3), _direction("left"), pl.col("gpus") - 1,
        figure(pl.col("z"), digits=3),
    )  # fmt: skip
    return make_findings(found.filter(odd), evidence, worst=z)


def polished(tables: Tables) -> pl.LazyFrame:
    """Compute ``left`` per GPU and cell: the logarithm of its time ``t``, less the effects of cell and GPU.

    Only cells that at least three ``gpus`` have count, and only times of one content of the problem, where it is known,
    are compared.
    """
    time, left = pl.col("candidate_median_ns"), pl.col("left")
    rows = passed(tables.cells).filter((time > 0) & time.is_finite() & pl.col("gpu").is_not_null())
    by_cell = rows.group_by(*WHERE, "problem_sha256").agg(time.median().alias("t"))
    cell = pl.struct(*(name for name in WHERE if name != "gpu"), "problem_sha256").hash()
    logs = by_cell.select(*WHERE, "t", cell=cell, left=pl.col("t").log())
    several = logs.with_columns(gpus=pl.len().over("cell")).filter(pl.col("gpus") >= _GPUS_OF_CELL)
    for _ in range(_ROUNDS):
        several = several.with_columns(left - left.median().over("cell")).with_columns(left - left.median().over("gpu"))
    return several.drop("cell")


def _residuals(tables: Tables) -> pl.LazyFrame:
    """Compute ``left`` per GPU and cell: the logarithm of time × rate, minus its median over GPUs."""
    time = pl.col("candidate_median_ns")
    # A name that people type may mean boards whose bandwidths differ twofold.
    rows = passed(tables.cells).filter((time > 0) & time.is_finite() & pl.col("gpu_name").is_not_null())
    known = with_sheets(
        rows.select(*WHERE, "gpu_name", "bound", "candidate_median_ns", "peak_flops_per_s", "peak_bytes_per_s",
                    "link_bytes_per_s")
    )  # fmt: skip
    rate = (
        pl.when(pl.col("bound") == COMPUTE).then(pl.coalesce("sheet_flops_per_s", "peak_flops_per_s"))
        .when(pl.col("bound") == LINK).then("link_bytes_per_s")
        .otherwise(pl.coalesce("sheet_bytes_per_s", "peak_bytes_per_s"))
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
