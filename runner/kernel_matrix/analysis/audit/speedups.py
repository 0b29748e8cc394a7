"""Check for speed-ups that nothing backs."""

from __future__ import annotations

from typing import Final

import polars as pl

from kernel_matrix.analysis.audit.check import WHERE, figure, make_findings, micro, passed, percent
from kernel_matrix.analysis.audit.times import bytes_per_s, least_compute_ns, with_sheets
from kernel_matrix.analysis.quantiles import NORMAL_MAD
from kernel_matrix.analysis.sentences import sentence
from kernel_matrix.analysis.tables import Tables

_LARGE: Final = 10.0
"""Speed-up from which something has to back it."""
_BACKED: Final = 0.1
"""Share of the peak rate from which the roofline backs a speed-up: the baseline was that slow."""
_PEERS: Final = 4.0
"""Factor over the best other candidate of the problem, up to which that backs a speed-up."""
_Z: Final = 5.0
"""Robust z above which a speed-up is far from the set's: fused kernels of honest sets reach 4.5 on short calls."""
_SPREAD: Final = 0.2
"""Smallest deviation of a set's logarithms used: speed-ups of real sets differ by more."""
_SET: Final = 5
"""Cells that make a set."""


def implausible(tables: Tables) -> pl.LazyFrame:
    """Find speed-ups of 10 and more that the roofline contradicts or, where it says nothing, the set.

    The roofline contradicts a time that is shorter than the work takes from memory and at the peak rate; data from a
    cache, or a wrong count of the work, may explain it. It backs a time that reaches a tenth of the peak. Else the best
    other candidate of the problem backs a speed-up that is not far above its own, and the set one that is not far from
    the others.
    """
    work = ("flops", "bytes", "gpu_name", "peak_flops_per_s", "peak_bytes_per_s", "quality_snr_db")
    rows = with_sheets(passed(tables.cells).filter(_ratio() > 0).select(
        *WHERE, *work, "candidate_median_ns", speedup=_ratio()
    ))  # fmt: skip
    least = pl.max_horizontal(least_compute_ns(pl.col("flops")), pl.col("bytes") / bytes_per_s() * 1e9)
    by_cell = (
        rows.with_columns(least=least)
        .group_by(WHERE)
        .agg(pl.col("candidate_median_ns").median().alias("time"), pl.col("least").max(), pl.col("speedup").median())
    )
    problem = [name for name in WHERE if name != "candidate"]
    best = pl.col("speedup").max()
    compared = by_cell.join(_of_sets(by_cell), on="gpu", nulls_equal=True).with_columns(
        share=pl.col("least") / pl.col("time"),
        other=pl.when(pl.len().over(problem) > 1).then(
            pl.when(pl.col("speedup") == best.over(problem))
            .then(pl.col("speedup").top_k(2).min().over(problem))
            .otherwise(best.over(problem))
        ),
        z=(pl.col("speedup").log() - pl.col("middle")) / pl.col("spread"),
    )
    large = compared.filter(pl.col("speedup") >= _LARGE)
    against_roofline = pl.col("share") > 1
    unbacked = (pl.col("share").fill_null(0) < _BACKED) & (
        pl.col("other").is_null() | (pl.col("speedup") > pl.col("other") * _PEERS)
    )
    far = (pl.col("cells") < _SET) | (pl.col("z") > _Z)
    return make_findings(
        large.filter(against_roofline | (unbacked & far)), _words(against_roofline), worst=pl.col("speedup")
    )


def _ratio() -> pl.Expr:
    return pl.coalesce("speedup", pl.col("baseline_median_ns") / pl.col("candidate_median_ns"))


def _of_sets(by_cell: pl.LazyFrame) -> pl.LazyFrame:
    """Compute the ``middle`` and ``spread`` of the logarithms of speed-ups over the ``cells`` of each GPU."""
    logs = by_cell.select("gpu", log=pl.col("speedup").log())
    apart = (pl.col("log") - pl.col("log").median()).abs().median() * NORMAL_MAD
    return logs.group_by("gpu").agg(
        pl.col("log").median().alias("middle"),
        pl.max_horizontal(apart, pl.lit(_SPREAD)).alias("spread"),
        pl.len().alias("cells"),
    )


def _words(against_roofline: pl.Expr) -> pl.Expr:
    """Say how large the speed-up is, and against what it is implausible."""
    of_roofline = sentence(
        "it took {}, but its work takes {} from memory and at peak rate ({} of peak)",
        micro(pl.col("time")), micro(pl.col("least")), percent(pl.col("share")),
    )  # fmt: skip
    of_set = pl.when(pl.col("cells") < _SET).then(pl.lit("the set is too small to compare")).otherwise(
        sentence(
            "the median of {} cells is {}×, robust z {}",
            "cells", figure(pl.col("middle").exp(), digits=3), figure(pl.col("z"), digits=3),
        )
    )  # fmt: skip
    of_problem = pl.when(pl.col("other").is_null()).then(pl.lit("no other candidate of the problem")).otherwise(
        sentence("the best other candidate of the problem has {}×", figure(pl.col("other"), digits=3))
    )  # fmt: skip
    why = pl.when(against_roofline).then(of_roofline).otherwise(sentence("{}; {}", of_problem, of_set))
    return sentence("{}× faster than the baseline; {}", figure(pl.col("speedup"), digits=3), why)
