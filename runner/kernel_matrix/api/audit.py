"""Find results that cannot be believed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from kernel_matrix.analysis.audit import AuditCheck, Severity, chosen
from kernel_matrix.analysis.audit import audit as _audit
from kernel_matrix.api.results import Results, as_results

__all__ = ["AuditCheck", "AuditResult", "Severity", "audit", "check_names"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditResult:
    """The findings of one check."""

    check: AuditCheck
    findings: pl.DataFrame
    """One row per finding, the worst first."""


def audit(results: Results | str | Path = "results", *, only: Sequence[str] = ()) -> list[AuditResult]:
    """Look for impossible times, copies, wrong names, holes and more.

    Args:
        results: Opened results, or a folder.
        only: Names of checks; all where none is named.

    Returns:
        One result per check, also where nothing was found; errors first.

    Raises:
        UsageError: A name is no check.
        NothingSelectedError: There are no rows to look at.

    Examples:
        >>> import kernel_matrix
        >>> (found,) = kernel_matrix.audit("results/example-h200.kmz", only=["impossible_time"])
        >>> found.check.severity.value, found.findings.height
        ('error', 0)
    """
    checks = chosen(only)
    opened = as_results(results)
    return [AuditResult(check=check, findings=rows) for check, rows in _audit(opened.tables, checks)]


def check_names(names: Sequence[str]) -> None:
    """Check that every name is that of a check, before anything is opened.

    Raises:
        UsageError: One is not.
    """
    chosen(names)
