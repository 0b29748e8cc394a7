"""Verdicts that are withheld once all results of a table are known."""

from __future__ import annotations

import polars as pl

from kernel_matrix.model.enums import Verdict, VerdictReason
from kernel_matrix.results.schema import CELLS


def inconclusive(where: pl.Expr, reason: VerdictReason, figure: pl.Expr) -> dict[str, pl.Expr]:
    """Return the columns of a verdict, which is ``inconclusive`` for ``reason`` in the rows of ``where``."""
    withheld = pl.when(where)
    return {
        "verdict": withheld.then(pl.lit(Verdict.INCONCLUSIVE.value, CELLS["verdict"])).otherwise("verdict"),
        "verdict_reason": withheld.then(pl.lit(reason.value, CELLS["verdict_reason"])).otherwise("verdict_reason"),
        "verdict_figure": withheld.then(figure).otherwise("verdict_figure"),
    }
