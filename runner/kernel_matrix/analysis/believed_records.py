"""The latest record of each cell, if it can be believed: the sides that pairs of candidates are made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import polars as pl

from kernel_matrix.analysis.audit import objections
from kernel_matrix.analysis.outcomes import candidate_kind
from kernel_matrix.analysis.tables import Tables
from kernel_matrix.model.enums import Fault, Grade, Status, VerdictReason
from kernel_matrix.results.attempts import is_shown, latest_attempts
from kernel_matrix.results.labels import LABELS, LabelClass

SAME_WORK: Final = (
    "matrix", "gpu", "toolchain", "dtype", "problem", "problem_sha256", "tier", "image_id", "measurement_version",
)  # fmt: skip
"""Columns in which both sides of a pair agree."""
SAME_HOST: Final = ("host_id", "gpu_uuid", "driver", "clock_state", "torch", "triton")
"""Columns in which they also agree if their times are compared."""
_FACTS: Final = (
    *SAME_WORK, *SAME_HOST, "cell_id", "attempt", "category", "source", "candidate", "candidate_sha256", "language",
    "origin_method", "origin_model", "origin_parent", "origin_no_code", "status", "message", "stage", "specialised",
)  # fmt: skip
_WITHHOLDING: Final = [name for name, label in LABELS.items() if label.kind is LabelClass.WITHHELD]
_OBJECTIONS: Final = [
    reason.value for reason in (VerdictReason.FEW_CALLS, VerdictReason.SCATTERED, VerdictReason.AUDIT_OBJECTS)
]
"""Reasons of a verdict that object to the times themselves."""
TIME_CHECKS: Final = ("scattered", "slow_unit")
"""Checks of the audit that object to a time alone; any other objection leaves out the whole record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BelievedRecords:
    """One row per record, and how many records were left out for which reason."""

    table: pl.DataFrame
    """``record``, facts of it, ``workloads``, ``passed``, ``log_ns`` (mean logarithm of its times), and ``time_fault``:
    why its time cannot be compared, null if it can."""
    left_out: Mapping[str, int]


def find_believed_records(tables: Tables, *, least_grade: Grade = Grade.B) -> BelievedRecords:
    """Choose the latest attempt at each cell on each board that passed, or failed by the candidate's own fault.

    A cell whose latest attempt the audit objects to has no row: an earlier attempt may have the same fault unseen.
    If only :data:`TIME_CHECKS` object, its time cannot be compared.

    Args:
        tables: Tables of results.
        least_grade: The weakest grade of a time that can be compared.
    """
    passed = pl.col("status") == Status.PASSED.value
    ended = tables.cells.filter(is_shown(), passed | (pl.col("fault") == Fault.CANDIDATE.value))
    latest = latest_attempts(ended, ("cell_id", "host_id", "gpu_uuid"))
    found = (
        ended.join(latest, on="record", how="semi")
        .join(_accusations(ended), on="cell_id", how="left")
        .with_columns(kind=candidate_kind(), passed=passed)
        .group_by("record")
        .agg(
            *(pl.col(name).first() for name in (*_FACTS, "kind", "passed", "accusations")),
            pl.col("workload").drop_nulls().unique().sort().alias("workloads"),
            pl.col("candidate_median_ns").log().mean().alias("log_ns"),
            _time_fault(least_grade).alias("time_fault"),
        )
        .sort("record")
        .collect(engine="streaming")
    )
    objected = objections(tables).explode("checks")
    of_time = pl.col("checks").is_in(TIME_CHECKS)
    doubted, badly_timed = (
        pl.col("record").is_in(objected.filter(which)["record"].implode()) for which in (~of_time, of_time)
    )
    faults = {
        "it stands for an answer without code": pl.col("origin_no_code").is_not_null(),
        "it is a control or the problem's own reference": pl.col("kind") != "candidate",
        "only one attempt found its times false": _is_accused() & (pl.col("accusations") == 1),
        "the audit objects to it": doubted,
    }
    time_fault = pl.coalesce("time_fault", pl.when(badly_timed).then(pl.lit("the audit objects to its time")))
    found = found.with_columns(reason=_first_that_holds(faults), time_fault=time_fault)
    counted = dict(found.drop_nulls("reason").group_by("reason").len().iter_rows())
    ended_otherwise = {"the machine, the problem or a missing feature ended the attempt": _count_others(tables, ended)}
    return BelievedRecords(
        table=found.filter(pl.col("reason").is_null()).drop("reason", "accusations"),
        left_out=ended_otherwise | {words: counted.get(words, 0) for words in faults},
    )


def _accusations(ended: pl.LazyFrame) -> pl.LazyFrame:
    """Count the attempts at each cell that ended as ``timing_mismatch``; a single one is repeated before it counts."""
    return ended.filter(_is_accused()).group_by("cell_id").agg(accusations=pl.col("record").n_unique())


def _is_accused() -> pl.Expr:
    return pl.col("status") == Status.TIMING_MISMATCH.value


def _count_others(tables: Tables, ended: pl.LazyFrame) -> int:
    number = pl.col("record").n_unique()
    return int(tables.cells.select(number).collect().item()) - int(ended.select(number).collect().item())


def _time_fault(least_grade: Grade) -> pl.Expr:
    """Say why the time of a record with several rows cannot be compared; null if it can."""
    grade, workload = pl.col("grade").cast(pl.String), pl.col("workload")
    is_withheld = pl.col("labels").list.set_intersection(_WITHHOLDING).list.len() > 0
    faults = {
        "it ran in an interpreter, or its labels withhold the verdict": is_withheld.any(),
        "it has no time": workload.filter(pl.col("candidate_median_ns") > 0).n_unique() < workload.n_unique(),
        f"the grade of its time is below {least_grade.value}": (grade.is_null() | (grade > least_grade.value)).any(),
        "its timed calls are few or scattered": pl.col("verdict_reason").cast(pl.String).is_in(_OBJECTIONS).any(),
        "the longest that its calls can have taken is not known": pl.col("wall_bound_ns").is_null().any(),
    }
    return _first_that_holds(faults)


def _first_that_holds(faults: Mapping[str, pl.Expr]) -> pl.Expr:
    return pl.coalesce(pl.when(holds).then(pl.lit(words)) for words, holds in faults.items())
