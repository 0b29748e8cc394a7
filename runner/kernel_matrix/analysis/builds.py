"""What compilers made of candidates on every kind of GPU: registers, spills, shared memory, instructions, occupancy.

All of it is told by the process that compiled a candidate, so it is a claim.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import polars as pl

from kernel_matrix.analysis.outcomes import outcomes
from kernel_matrix.analysis.questions import Answer, QuestionOptions
from kernel_matrix.analysis.slices import columns_of
from kernel_matrix.analysis.tables import Tables
from kernel_matrix.model.enums import Stage, Status
from kernel_matrix.results.derived_columns import BUILT

_CELL: Final = ("problem", "candidate", "language", "dtype", "gpu", "toolchain")
_NOT_BUILT: Final = (Status.COMPILE_ERROR.value, Status.UNSUPPORTED.value)
_BUILT: Final = pl.col("kernels") > 0
_LAUNCHABLE: Final = _BUILT & (pl.col("refused") == 0)

_OF_KERNELS: Final = {
    "compute_capability": pl.col("compute_capability").drop_nulls().first(),
    "kernels": pl.len(),
    "registers": pl.col("registers").max(),
    "scalar_registers": pl.col("scalar_registers").max(),
    "accumulator_registers": pl.col("accumulator_registers").max(),
    "spill_bytes": (pl.col("spill_store_bytes") + pl.col("spill_load_bytes")).max(),
    "shared_bytes": pl.col("shared_bytes").max(),
    "instructions": pl.when(pl.col("matrix_instructions").is_not_null().any()).then(
        pl.col("matrix_instructions").list.explode().drop_nulls().unique().sort().str.join(" ")
    ),
    "occupancy": pl.col("occupancy").min(),
    "refused": pl.col("launchable").not_().sum(),
    "reason": pl.col("reason").filter(pl.col("launchable").not_()).first(),
}
"""Column of a build → its value over the kernels of a record."""

_MEANINGS: Final = {
    "status": "how the cell ended",
    "compute_capability": "what it was compiled for",
    "kernels": "distinct kernels: one for each form in which the workloads call one, and each configuration",
    "registers": "most registers per thread of a kernel (VGPRs, with the AGPRs)",
    "scalar_registers": "most registers per warp (SGPRs)",
    "accumulator_registers": "most registers that only matrix instructions use (AGPRs)",
    "spill_bytes": "most bytes per thread that a kernel writes to memory and reads back for want of registers",
    "shared_bytes": "most shared memory of a block (LDS of a workgroup) that is known at compile time",
    "instructions": "families of instructions for matrix products in its kernels; missing: its assembly is not known",
    "occupancy": "smallest share of a multiprocessor's threads that a kernel can occupy at most (limited by registers, "
    "shared memory and the size of a block)",
    "refused": "kernels that such a device could not launch",
    "reason": "why a kernel could not be launched, or why nothing was built",
}


def builds(tables: Tables, request: QuestionOptions) -> list[Answer]:
    """Answer ``builds``, what was built per slice, and ``kernels``, what each build is like.

    Raises:
        UsageError: A slice is unknown.
    """
    by = list(request.by) or ["gpu"]
    found = _cells(tables, request)
    return [_per_slice(found, by), _each(found)]


def _cells(tables: Tables, request: QuestionOptions) -> pl.DataFrame:
    """Make one row per cell that was built or could not be, in the latest attempt on each host."""
    named = zip(request.by, columns_of(request.by), strict=True)
    slices = [pl.col(column).alias(name) for name, column in named if name not in _CELL]
    is_built = pl.col("origin").cast(pl.String) == BUILT
    of_kernels = tables.kernels.filter(is_built).group_by("record").agg(**_OF_KERNELS)
    cells = outcomes(tables.cells).unique("record", keep="first").drop("compute_capability")
    failed = (pl.col("stage").cast(pl.String) == Stage.BUILD.value) & pl.col("status").cast(pl.String).is_in(_NOT_BUILT)
    return (
        cells.join(of_kernels, on="record", how="left")
        .filter(pl.col("kernels").is_not_null() | failed)
        .with_columns(
            pl.col("kernels", "refused").fill_null(0),
            reason=pl.when(pl.col("kernels").is_null()).then(pl.col("message")).otherwise(pl.col("reason")),
        )
        .select(*dict.fromkeys((*_CELL, "candidate_sha256", "status", *_OF_KERNELS)), *slices)
        .collect(engine="streaming")
    )


def _per_slice(found: pl.DataFrame, by: list[str]) -> Answer:
    table = found.group_by(by).agg(
        pl.len().alias("cells"),
        _BUILT.sum().alias("built"),
        _LAUNCHABLE.sum().alias("launchable"),
        (_BUILT & (pl.col("spill_bytes") > 0)).sum().alias("spilling"),
        (pl.col("instructions").str.len_chars() > 0).sum().alias("with_instructions"),
        pl.col("registers").median(),
        pl.col("occupancy").median(),
    )
    return Answer(
        name="builds",
        title="What was built for each kind of GPU",
        table=table.sort(by, nulls_last=True),
        meanings={
            "cells": "cells that were compiled ahead of time, or could not be",
            "built": "cells with at least one kernel",
            "launchable": "cells all of whose kernels such a device could launch",
            "spilling": "cells with a kernel that lacks registers and so uses memory",
            "with_instructions": "cells with a kernel that uses instructions for matrix products",
            "registers": "median of the most registers per thread in each cell (VGPRs)",
            "occupancy": "median of the smallest occupancy in each cell",
        },
        statements=list(_statements(found)),
    )


def _statements(found: pl.DataFrame) -> Iterator[str]:
    gpus = found["gpu"].drop_nulls().n_unique()
    if gpus < 2:  # nothing to compare
        return
    kernel = [name for name in (*_CELL, "candidate_sha256") if name != "gpu"]
    each = found.filter(_LAUNCHABLE).group_by(kernel).agg(pl.col("gpu").n_unique())
    every = each.filter(pl.col("gpu") == gpus).height
    of = found.select(kernel).unique().height
    yield f"{every} of {of} candidates, each in a dtype and toolchain, build and fit on all {gpus} kinds of GPU."


def _each(found: pl.DataFrame) -> Answer:
    return Answer(
        name="kernels",
        title="What each build is like",
        table=found.select(*_CELL, "status", *_OF_KERNELS).sort(
            "problem", "candidate", "dtype", "toolchain", "gpu", nulls_last=True
        ),
        meanings=_MEANINGS,
    )
