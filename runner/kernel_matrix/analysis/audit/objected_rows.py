"""Rows whose verdict the audit's checks object to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import polars as pl

from kernel_matrix.analysis.audit.check import PLACE, AuditCheck, Severity
from kernel_matrix.analysis.tables import Tables

WARNINGS: Final = frozenset(
    {"like_the_baseline", "same_for_any_size", "scattered", "implausible_speedup", "odd_cell", "slow_unit"}
)
"""Names of the warnings that leave no ground for a verdict; of errors, all but :data:`_OF_NO_ROW` do."""
_OF_NO_ROW: Final = frozenset({"orphan"})
"""Names of errors about calls, kernels or hosts that belong to no row of ``cells``."""
_ROW: Final = ("record", "workload")


def objecting(checks: Sequence[AuditCheck]) -> list[AuditCheck]:
    """Return those of ``checks`` whose findings leave no ground for a verdict."""
    return [
        check
        for check in checks
        if check.name in WARNINGS or (check.severity is Severity.ERROR and check.name not in _OF_NO_ROW)
    ]


def find_objections(tables: Tables, checks: Sequence[AuditCheck]) -> pl.DataFrame:
    """Find the rows that findings of ``checks`` are about.

    A column that a finding leaves empty means all of its values, so a finding about a GPU is one about all of its rows,
    and one about a board, whatever the cell, is one about all rows of that board.

    Returns:
        ``record``, ``workload``, and the names of the ``checks`` that object, in order. Rows without objections are
        missing.
    """
    rows = tables.cells.select(*dict.fromkeys((*_ROW, *PLACE))).unique().with_columns(
        pl.col([name for name in PLACE if name != "workload"]).cast(pl.String)
    ).collect(engine="streaming")  # fmt: skip
    schema = {**{name: rows.schema[name] for name in _ROW}, "check": pl.String()}
    parts = [pl.DataFrame(schema=schema)]
    for check in checks:
        found = check.findings(tables).select(PLACE).unique()
        for there, of_pattern in found.group_by([pl.col(name).is_not_null() for name in PLACE]):
            keys = [name for name, is_there in zip(PLACE, there, strict=True) if is_there]
            hit = rows.join(of_pattern, on=keys, how="semi") if keys else rows
            parts.append(hit.select(*_ROW, pl.lit(check.name).alias("check")))
    by_row = pl.concat(parts).group_by(_ROW).agg(pl.col("check").unique().sort().alias("checks"))
    return by_row.sort(_ROW, nulls_last=True)
