"""Verdicts that are withheld once all results of a table are known."""

from __future__ import annotations

import polars as pl

from kernel_matrix.model.enums import Verdict, VerdictReason
from kernel_matrix.results.schema import CELLS


def inconclusive(where: pl.Expr, reason: VerdictReason, figure: pl.Expr) -> dict[str, pl.Expr]:
    """Return the columns of a verdict, which is ``inconclusive`` for ``reason`` in the rows of ``where``."""
    return {
        **_withheld("verdict", where, reason),
        "verdict_figure": pl.when(where).then(figure).otherwise("verdict_figure"),
    }


def session_inconclusive(where: pl.Expr, reason: VerdictReason) -> dict[str, pl.Expr]:
    """Return the columns of the verdict of one session, likewise."""
    return _withheld("session_verdict", where, reason)


def _withheld(verdict: str, where: pl.Expr, reason: VerdictReason) -> dict[str, pl.Expr]:
    words = {verdict: Verdict.INCONCLUSIVE.value, f"{verdict}_reason": reason.value}
    return {name: pl.when(where).then(pl.lit(word, CELLS[name])).otherwise(name) for name, word in words.items()}
