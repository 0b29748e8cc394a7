"""Checks for candidates that passed without having run."""

from __future__ import annotations

from typing import Final

import polars as pl

from kernel_matrix.analysis.audit.check import WHERE, claimed, figure, make_findings, micro, passed
from kernel_matrix.analysis.sentences import sentence
from kernel_matrix.analysis.tables import Tables
from kernel_matrix.model.enums import Language

_WALL: Final = 0.5
"""Share of a claimed time that the judge's clock must have measured beyond the overhead of a call."""
_LONG: Final = 0.5
"""Smallest claimed time, as a share of the overhead of a call, that the judge's clock can resolve."""
_GROWTH: Final = 10.0
"""Factor by which the baseline's times must differ over the workloads of a problem."""
_STILL: Final = 1.1
"""Factor by which the candidate's times may differ then."""


def never_ran(tables: Tables) -> pl.LazyFrame:
    """Find passed rows without a kernel, without one of the candidate's own, or with calls as short as their overhead.

    A candidate in torch uses the library's kernels and has none of its own.
    """
    rows = passed(tables.cells)
    nothing = rows.filter(pl.col("kernels_seen") == 0)
    not_own = rows.filter((pl.col("own_kernel_share") == 0) & (pl.col("language") != Language.TORCH.value))
    time, wall, overhead = claimed("candidate"), pl.col("candidate_wall_median_ns"), pl.col("wall_overhead_ns")
    unseen = rows.filter((time > overhead * _LONG) & (wall - overhead < time * _WALL))
    too_short = sentence(
        "claims {} on the device, but its calls took {} in all, and their overhead is {}",
        micro(time),
        micro(wall),
        micro(overhead),
    )
    return pl.concat(
        [
            _by_cell(nothing, pl.lit("it passed, but no kernel was seen to run")),
            _by_cell(not_own, pl.lit("it passed, but none of the kernels that ran were its own")),
            make_findings(unseen, too_short, worst=time / wall),
        ]
    )


def same_for_any_size(tables: Tables) -> pl.LazyFrame:
    """Find times that vary by less than a tenth over workloads whose baseline's times vary tenfold."""
    cell = ("gpu", "toolchain", "dtype", "problem", "candidate")
    ours, theirs = pl.col("candidate_median_ns"), pl.col("baseline_median_ns")
    found = passed(tables.cells).filter((ours > 0) & (theirs > 0)).group_by(cell).agg(
        pl.col("workload").n_unique().alias("workloads"),
        (ours.max() / ours.min()).alias("still"),
        (theirs.max() / theirs.min()).alias("growth"),
        ours.max().alias("most"),
    )  # fmt: skip
    odd = (pl.col("workloads") > 1) & (pl.col("still") < _STILL) & (pl.col("growth") > _GROWTH)
    evidence = sentence(
        "over {} workloads its times differ {}× (up to {}), the baseline's {}×",
        "workloads", figure(pl.col("still"), digits=3), micro(pl.col("most")), figure(pl.col("growth"), digits=3),
    )  # fmt: skip
    return make_findings(found.filter(odd), evidence, count=pl.col("workloads"), worst=pl.col("growth"))


def _by_cell(rows: pl.LazyFrame, what: pl.Expr) -> pl.LazyFrame:
    by_cell = rows.group_by(WHERE).agg(pl.len().alias("sessions"))
    return make_findings(by_cell, sentence("{} ({} sessions)", what, "sessions"), count=pl.col("sessions"))
