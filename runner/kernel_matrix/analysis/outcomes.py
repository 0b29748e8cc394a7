"""The two frames that every analysis starts from: outcomes, one row per cell, host and workload, and sessions.

An *outcome* is the result of the latest attempt at a cell on a host for one workload (null if it failed before any),
with its sessions averaged on the scale of logarithms. A held-out workload has none: it is not timed, and its failure is
the status of the attempt, so of its other outcomes. A *session* row is one fresh process: the unit of inference.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import polars as pl

from kernel_matrix.analysis.quantiles import of_sessions
from kernel_matrix.analysis.withheld_verdicts import inconclusive
from kernel_matrix.model.enums import Fault, Status, Tier, Verdict, VerdictReason
from kernel_matrix.plan.selection import REFERENCE
from kernel_matrix.results.attempts import is_shown, latest_attempts
from kernel_matrix.results.schema import CELLS, ORIGIN

MOST_FALSE: Final = 0.05
"""Largest expected share of false ones among the verdicts ``faster`` and ``slower`` of a table."""

CELL_KEY: Final = ("gpu", "toolchain", "dtype", "problem", "ranks", "workload", "candidate")
"""Columns that identify a cell and workload across runs; ``gpu`` is the matrix's name of a model."""

_FACTS: Final = (
    "run_id", "cell_id", "attempt", "matrix", "run_started_at", "started_at",
    "gpu", "toolchain", "dtype", "problem", "problem_sha256", "ranks", "category", "level", "source",
    "candidate", "candidate_sha256", "language", "tier", "expect",
    *(f"origin_{name}" for name in ORIGIN),
    "status", "stage", "fault", "message",
    "gpu_uuid", "gpu_name", "compute_capability", "driver", "host_id", "hostname", "engine", "image_id",
    "torch", "triton", "cuda", "clock_state", "exclusive", "code_sha256",
    "verdict", "verdict_reason", "verdict_figure", "verdict_chance",
    "grade", "grade_reason", "spread_between", "machine_drift", "code_drift",
    "floor_ns", "bound", "low_resolution", "compile_s", "total_s",
)  # fmt: skip
"""Columns of ``cells`` that are equal in all sessions of an outcome."""

KINDS: Final = ("candidate", "control", "reference")
"""Kinds of outcomes: those of the problem's reference as a candidate, of controls, which are declared to fail, and of
all other candidates."""

_SHARES: Final = ("flops_share_of_peak", "bytes_share_of_peak", "share_of_peak", "spread_within")
"""Columns that are reduced to their median over sessions."""

OUTCOMES: Final[dict[str, pl.DataType]] = {
    "record": pl.UInt32(),
    "workload": pl.String(),
    **{name: CELLS[name] for name in (*_FACTS, *_SHARES)},
    "sessions": pl.Int32(),
    "candidate_ns": pl.Float64(),
    "baseline_ns": pl.Float64(),
    "speedup": pl.Float64(),
    "speedup_low": pl.Float64(),
    "speedup_high": pl.Float64(),
    "counted": pl.Boolean(),
    "compiled": pl.Boolean(),
    "passed": pl.Boolean(),
    "candidate_kind": pl.Enum(KINDS),
}
"""``verdict``: ``faster`` and ``slower`` only where all verdicts of the table together allow it. ``candidate_ns``,
``baseline_ns``, ``speedup``: geometric means over session medians, in nanoseconds and as baseline
÷ candidate; null where nothing was timed *or the attempt did not pass*. ``speedup_low`` and ``speedup_high``: 95 % t
interval from sessions, null with fewer than two. ``counted``: passed, or failed by the candidate's fault, in a tier
that times: the denominator of rates; ``compiled`` and ``passed`` are null where not counted. ``candidate_kind``: of
:data:`KINDS`."""

_OF_SESSIONS: Final = (
    "cell_id", "matrix", "run_id", "started_at", "gpu", "toolchain", "dtype", "problem", "ranks",
    "candidate", "category", "candidate_sha256", "problem_sha256", "language", "tier",
    "gpu_uuid", "gpu_name", "host_id", "hostname", "driver", "image_id",
    "candidate_median_ns", "baseline_median_ns", "speedup", "spread_within", "baseline_spread_within",
)  # fmt: skip

SESSIONS: Final[dict[str, pl.DataType]] = {
    "record": pl.UInt32(),
    "session": pl.Int32(),
    "workload": pl.String(),
    **{name: CELLS[name] for name in _OF_SESSIONS},
    "night": pl.Date(),
}
"""Sessions that passed and were timed. ``night``: the date, in UTC, on which the run started."""


def outcomes(cells: pl.LazyFrame) -> pl.LazyFrame:
    """Select the latest attempt at every cell on every host, one row per workload, in no order."""
    passed = pl.col("status") == Status.PASSED.value
    times = {"candidate_ns": "candidate_median_ns", "baseline_ns": "baseline_median_ns", "speedup": "speedup"}
    shown = cells.filter(is_shown())
    rows = shown.join(latest_attempts(cells, ("cell_id", "host_id", "gpu_uuid")), on="record", how="semi").select(
        "record",
        "workload",
        *_FACTS,
        *_SHARES,
        pl.col("speedup").is_not_null().cast(pl.Int32).alias("sessions"),
        *(pl.when(passed).then(pl.col(column).log()).alias(name) for name, column in times.items()),
        pl.lit(None, pl.Float64).alias("_sd"),
    )
    found = aggregate(
        rows,
        ("record", "workload"),
        *(pl.col(name).first() for name in _FACTS),
        *(pl.col(name).median() for name in _SHARES),
        pl.col("sessions").sum(),
        *(pl.col(name).mean() for name in times),
        pl.col("speedup").std().alias("_sd"),
    ).with_columns(pl.col(name).exp() for name in times)
    reach = pl.col("_sd") / pl.col("sessions").sqrt() * of_sessions(pl.col("sessions"))
    # What is only verified is in no denominator, and what fails at that must not be either.
    is_timed = (pl.col("tier").cast(pl.String) != Tier.VALUES.value).fill_null(value=True)
    counted = is_timed & (passed | (pl.col("fault") == Fault.CANDIDATE.value))
    return (
        _without_chance_verdicts(found)
        .with_columns(
            speedup_low=(pl.col("speedup").log() - reach).exp(),
            speedup_high=(pl.col("speedup").log() + reach).exp(),
            counted=counted,
            compiled=pl.when(counted).then(pl.col("status") != Status.COMPILE_ERROR.value),
            passed=pl.when(counted).then(passed),
            candidate_kind=candidate_kind(),
        )
        .select(pl.col(name).cast(dtype) for name, dtype in OUTCOMES.items())
    )


def aggregate(rows: pl.LazyFrame, key: Sequence[str], *columns: pl.Expr) -> pl.LazyFrame:
    """Make one row per ``key`` from all columns of ``rows``; rows that are alone come first, in their order.

    A row that is alone is taken as it is, so ``columns`` must be aggregations that leave a single row as it is. Most
    rows are alone, and to group them too would take many times as long as all the rest.
    """
    several = may_repeat(key)
    alone, others = rows.filter(~several), rows.filter(several)
    return pl.concat([alone, others.group_by(key, maintain_order=True).agg(columns).select(*rows.collect_schema())])


def may_repeat(key: Sequence[str]) -> pl.Expr:
    """Flag rows whose ``key`` others have too, and by chance of hashes hardly any others."""
    return pl.struct(key).hash().is_duplicated()


def _without_chance_verdicts(found: pl.LazyFrame) -> pl.LazyFrame:
    """Withdraw the verdicts ``faster`` and ``slower`` that would be false too often over the whole table.

    Those up to a chance are kept, so that at most :data:`MOST_FALSE` of them are expected to be false (Benjamini and
    Hochberg, J. R. Stat. Soc. B 57, 1995). Tables of earlier versions have no chances; their verdicts stay.
    """
    chance = pl.col("verdict_chance")
    allowed = MOST_FALSE * chance.rank("max") / chance.count()
    largest = chance.filter(chance <= allowed).max().fill_null(-1.0)
    directed = pl.col("verdict").is_in([Verdict.FASTER.value, Verdict.SLOWER.value])
    too_likely = directed & (chance > largest)
    return found.with_columns(**inconclusive(too_likely, VerdictReason.ONE_OF_MANY, chance))


def is_reference() -> pl.Expr:
    """Flag rows whose candidate is the problem's own reference."""
    return pl.col("candidate").cast(pl.String).str.ends_with(f"/{REFERENCE}")


def candidate_kind() -> pl.Expr:
    """Compute the kind of a row's candidate, of :data:`KINDS`."""
    control = pl.col("expect") != Status.PASSED.value
    found = pl.when(is_reference()).then(pl.lit("reference")).when(control).then(pl.lit("control"))
    return found.otherwise(pl.lit("candidate")).cast(pl.Enum(KINDS))


def ended_as_declared() -> pl.Expr:
    """Flag outcomes with the status that their candidate is declared to end with: passed, unless it says another."""
    return pl.col("status").cast(pl.String) == pl.col("expect").cast(pl.String).fill_null(Status.PASSED.value)


def ordinary(found: pl.DataFrame) -> pl.DataFrame:
    """Select outcomes of candidates that are neither controls nor references; all of them if there are none."""
    candidates = found.filter(pl.col("candidate_kind") == "candidate")
    return found if candidates.is_empty() else candidates


def sessions(cells: pl.LazyFrame) -> pl.LazyFrame:
    """Select every session of every attempt that passed and was timed, with the columns of :data:`SESSIONS`."""
    timed = (pl.col("session_status") == Status.PASSED.value) & (pl.col("candidate_median_ns") > 0)
    return (
        cells.filter(timed & (pl.col("status") == Status.PASSED.value))
        .with_columns(night=pl.col("run_started_at").dt.date())
        .select(*SESSIONS)
    )
