"""The overview that ``kernel-matrix results`` shows: the latest attempt at each cell, one row per workload."""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl

from kernel_matrix.filter_terms import explain_unmatched, parse_terms
from kernel_matrix.results.attempts import is_shown, latest_attempts
from kernel_matrix.results.derived_columns import RIVALS
from kernel_matrix.results.descriptions import DISCARDED

FILTERS = {
    **{
        key: key
        for key in (
            *("gpu", "toolchain", "dtype", "problem", "candidate", "language", "category", "level", "ranks"),
            *("status", "fault", "verdict", "verdict_reason", "grade", "workload", "hostname", "matrix"),
        )
    },
    "id": "cell_id",
    "run": "run_id",
}
"""Filter key → column of ``cells``. ``plan`` and ``run`` accept the same keys, except those known only after a run."""
_ATTEMPT = ("cell_id", "host_id")
_SHOWN = (
    *(
        "matrix",
        "gpu",
        "toolchain",
        "dtype",
        "problem",
        "candidate",
        "language",
        "category",
        "level",
        "ranks",
        "hostname",
    ),
    *("run_id", "expect", "status", "specialised", "stage", "fault", "message"),
    *("exclusive", "exclusive_reason", "quarantined"),
    *("clock_state", "clock_policy", "clock_reason", "clock_set_mhz", "clock_reset", "sm_clock_mhz"),
    *(
        "verdict",
        "verdict_speedup",
        "verdict_low",
        "verdict_high",
        "verdict_reason",
        "verdict_figure",
        "grade",
        "grade_reason",
        "bound",
    ),
    *("machine_drift", "code_drift", "findings"),
    *("build_arch", "registers_max", "spill_bytes_max", "shared_bytes_max", "code_sha256", "launchable"),
)
_MEDIANS = (
    *("candidate_median_ns", "baseline_median_ns", "speedup", "speedup_limit"),
    *(f"{rival}_median_ns" for rival in RIVALS),
    *(f"speedup_over_{rival}" for rival in RIVALS),
    *("flops_per_s", "bytes_per_s", "flops_share_of_peak", "bytes_share_of_peak", "share_of_peak"),
    *("algorithm_bytes_per_s", "bus_bytes_per_s", "link_share_of_peak"),
)
_MOST = ("candidate_memory_bytes", "baseline_memory_bytes")
_ORDER = ("problem", "ranks", "workload", "candidate", "dtype", "gpu", "toolchain", "hostname")


def overview(cells: pl.DataFrame) -> pl.DataFrame:
    """Return one row per cell, host and workload of the latest attempt, with medians over its sessions.

    Of peaks of memory it is the highest.
    Labels are collected from all sessions. The added columns are ``sessions``, ``samples`` (the candidate's timed calls
    that count) and ``attempts`` (at the cell on that host). Discarded calls are those of all contestants. Held-out
    workloads have no row: that one failed is the status of the others.
    """
    attempts = latest_attempts(cells.lazy(), _ATTEMPT).select("record", "attempts").collect()
    return (
        cells.join(attempts, on="record", how="inner")
        .filter(is_shown())
        .group_by("record", "cell_id", "host_id", "workload", "attempts")
        .agg(
            *(pl.col(name).first() for name in _SHOWN),
            *(pl.col(name).median() for name in _MEDIANS),
            *(pl.col(name).max() for name in _MOST),
            *(pl.col(name).sum() for name in DISCARDED),
            pl.col("labels").explode().drop_nulls().unique().sort(),
            pl.col("session").n_unique().alias("sessions"),
            pl.col("candidate_samples").sum().alias("samples"),
        )
        .sort(*_ORDER, "host_id", nulls_last=True)
    )


def filter_rows(rows: pl.DataFrame, terms: Iterable[str]) -> pl.DataFrame:
    """Return the rows of an overview that satisfy every term ``KEY=GLOB[,GLOB]`` or ``KEY!=GLOB[,GLOB]``.

    Raises:
        UsageError: A term has another form or an unknown key.
    """
    for term in parse_terms(terms, tuple(FILTERS)):
        words = rows.select(_texts(term.key).unique()).to_series()
        rows = rows.filter(_texts(term.key).is_in(list(filter(term.matches, words))))
    return rows


def explain_no_rows(rows: pl.DataFrame, terms: Iterable[str]) -> str:
    """Say which globs of ``terms`` match no row, and what may have been meant; empty if each matches one."""
    return explain_unmatched(
        parse_terms(terms, tuple(FILTERS)), lambda key: rows.select(_texts(key).unique()).to_series()
    )


def _texts(key: str) -> pl.Expr:
    return pl.col(FILTERS[key]).cast(pl.String).fill_null("")
