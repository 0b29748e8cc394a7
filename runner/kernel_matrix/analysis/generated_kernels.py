"""Kernels with what was spent on them: one row per kernel and place, from which budgets and groups are compared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import polars as pl

from kernel_matrix.analysis.outcomes import ordinary, outcomes
from kernel_matrix.analysis.tables import Tables
from kernel_matrix.errors import NothingSelectedError

PLACE: Final = ("problem", "ranks", "dtype", "gpu", "toolchain")
"""Target that a kernel is written for."""
GENERATOR: Final = ("origin_method", "origin_model", "origin_prompt")
"""What made a kernel; samples of two generators are never the same one."""
SPENT: Final = {"usd": "US dollars", "tokens": "tokens"}
"""Column of what was spent on a kernel → its unit in words."""


def generated_kernels(tables: Tables, by: Sequence[str]) -> pl.DataFrame:
    """Make one row per kernel and place: ``by``, :data:`PLACE`, :data:`GENERATOR`, and what came of the kernel.

    ``passed``: every workload, on every host. ``ratio``: geometric mean of its speed-ups, null if there is none.
    ``sample``: its number and generator, or its name if it has no number. ``round``: 0 if unknown. ``usd`` and
    ``tokens``: spent. Only cells that count; controls and references are left out if there is anything else.

    Raises:
        NothingSelectedError: No cell counts.
    """
    keys = list(dict.fromkeys((*by, *PLACE, *GENERATOR)))
    needed = ("candidate", "candidate_kind", "counted", "passed", "speedup", *_ORIGIN)
    found = ordinary(outcomes(tables.cells).select(*dict.fromkeys((*keys, *needed))).collect(engine="streaming"))
    counted = found.filter("counted")
    if counted.is_empty():
        raise NothingSelectedError("the tables hold no cell that counts", next_step="Name a folder with results.")
    number = pl.col("origin_sample").first().cast(pl.String).str.zfill(9)
    generator = [pl.col(name).first().fill_null("") for name in GENERATOR]
    tokens = pl.col("origin_tokens_in") + pl.col("origin_tokens_out")
    return (
        counted.group_by([*keys, "candidate"])
        .agg(
            pl.col("passed").all(),
            pl.col("speedup").log().mean().exp().alias("ratio"),
            pl.coalesce(pl.concat_str(number, *generator, separator="/"), "candidate").alias("sample"),
            pl.col("origin_round").first().fill_null(0).alias("round"),
            pl.col("origin_cost_usd").first().cast(pl.Float64).alias("usd"),
            tokens.first().cast(pl.Float64).alias("tokens"),
        )
        .with_columns(ratio=pl.when("passed").then("ratio"))
        .sort([*keys, "round", "sample", "candidate"], nulls_last=True)
    )


_ORIGIN: Final = ("origin_sample", "origin_round", "origin_cost_usd", "origin_tokens_in", "origin_tokens_out")
ANSWERS: Final = (
    "An answer without code is a kernel that fails, with its cost, where it has a record: `generate` makes one, other"
    " generators may not."
)
