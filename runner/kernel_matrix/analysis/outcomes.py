"""The two frames that every analysis starts from: outcomes, one row per cell, host and workload, and sessions.

An *outcome* is what the latest attempt at a cell on a host said about one workload (null where it got to none), with
its sessions put together on the scale of logarithms. A *session* row is one fresh process: the unit of inference.
"""

from __future__ import annotations

from typing import Final

import polars as pl

from kernel_matrix.analysis.quantiles import of_sessions
from kernel_matrix.model.enums import Fault, Status
from kernel_matrix.results.attempts import latest_attempts
from kernel_matrix.results.schema import CELLS, ORIGIN

CELL_KEY: Final = ("gpu", "toolchain", "dtype", "problem", "workload", "candidate")
"""What makes two outcomes the same question; ``gpu`` is the matrix's name of a model."""

_FACTS: Final = (
    *("run_id", "cell_id", "attempt", "matrix", "run_started_at", "started_at"),
    *("gpu", "toolchain", "dtype", "problem", "problem_sha256", "category", "level", "source"),
    *("candidate", "candidate_sha256", "language", "tier", "expect"),
    *(f"origin_{name}" for name in ORIGIN),
    *("status", "stage", "fault", "message"),
    *("gpu_uuid", "gpu_name", "compute_capability", "driver", "host_id", "hostname", "engine", "image_id"),
    *("torch", "triton", "cuda", "clock_state", "exclusive", "code_sha256"),
    *("verdict", "grade", "grade_reason", "spread_between", "machine_drift", "code_drift"),
    *("floor_ns", "bound", "low_resolution", "compile_s", "total_s"),
)
"""Columns of ``cells`` that an outcome takes over; the same in all its sessions."""

_SHARES: Final = ("flops_share_of_peak", "bytes_share_of_peak", "share_of_peak", "spread_within")
"""Columns of which an outcome has the median over its sessions."""

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
}
"""``candidate_ns``, ``baseline_ns``, ``speedup``: geometric means over sessions of their medians, nanoseconds and
baseline ÷ candidate; null where nothing was timed *or the attempt did not pass*. ``speedup_low`` and ``speedup_high``:
its 95 % t interval from sessions, null with fewer than two. ``counted``: the outcome says something about the candidate
(passed, or its own fault), so that it belongs into denominators; ``compiled`` and ``passed`` are null where not."""

SESSIONS: Final[dict[str, pl.DataType]] = {
    "record": pl.UInt32(),
    "session": pl.Int32(),
    "workload": pl.String(),
    **{
        name: CELLS[name]
        for name in (
            *("cell_id", "matrix", "run_id", "started_at", "gpu", "toolchain", "dtype", "problem"),
            *("candidate", "category", "candidate_sha256", "problem_sha256", "language", "tier"),
            *("gpu_uuid", "gpu_name", "host_id", "hostname", "driver", "image_id"),
            *("candidate_median_ns", "baseline_median_ns", "speedup", "spread_within"),
        )
    },
    "night": pl.Date(),
}
"""Sessions that passed and were timed. ``night``: the date, in UTC, on which the run started."""


def outcomes(cells: pl.LazyFrame) -> pl.LazyFrame:
    """The latest attempt at every cell on every host, one row per workload.

    :param cells: with the columns of ``CELLS``.
    :return: with the columns of :data:`OUTCOMES`, in no order.
    """
    passed = pl.col("status") == Status.PASSED.value
    log = {name: pl.col(name).log().filter(passed) for name in ("candidate_median_ns", "baseline_median_ns", "speedup")}
    found = (
        cells.join(latest_attempts(cells, ("cell_id", "host_id", "gpu_uuid")), on="record", how="semi")
        .group_by("record", "workload")
        .agg(
            *(pl.col(name).first() for name in _FACTS),
            *(pl.col(name).median() for name in _SHARES),
            pl.col("speedup").count().cast(pl.Int32).alias("sessions"),
            log["candidate_median_ns"].mean().exp().alias("candidate_ns"),
            log["baseline_median_ns"].mean().exp().alias("baseline_ns"),
            log["speedup"].mean().exp().alias("speedup"),
            log["speedup"].std().alias("_sd"),
        )
    )
    reach = pl.col("_sd") / pl.col("sessions").sqrt() * of_sessions(pl.col("sessions"))
    candidates_fault = pl.col("fault") == Fault.CANDIDATE.value
    counted = passed | candidates_fault
    return found.with_columns(
        speedup_low=(pl.col("speedup").log() - reach).exp(),
        speedup_high=(pl.col("speedup").log() + reach).exp(),
        counted=counted,
        compiled=pl.when(counted).then(pl.col("status") != Status.COMPILE_ERROR.value),
        passed=pl.when(counted).then(passed),
    ).select(pl.col(name).cast(dtype) for name, dtype in OUTCOMES.items())


def sessions(cells: pl.LazyFrame) -> pl.LazyFrame:
    """Every session of every attempt that passed and was timed, with the columns of :data:`SESSIONS`."""
    timed = (pl.col("session_status") == Status.PASSED.value) & (pl.col("candidate_median_ns") > 0)
    return (
        cells.filter(timed & (pl.col("status") == Status.PASSED.value))
        .with_columns(night=pl.col("run_started_at").dt.date())
        .select(*SESSIONS)
    )
