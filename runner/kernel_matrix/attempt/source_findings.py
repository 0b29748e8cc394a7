"""Findings in a candidate's source, the policy's decision about them, and measures of the source."""

from __future__ import annotations

from contextlib import suppress

from kernel_matrix.attempt.outcome import outcome_of
from kernel_matrix.model.enums import Stage, Status
from kernel_matrix.model.messages import Evidence
from kernel_matrix.plan import Cell
from kernel_matrix.results.record import Outcome, SourceFinding
from kernel_matrix.scan import SourceScan, scan_files
from kernel_matrix.scan.code_measures import CodeMeasures, measure_code


def scan_of(cell: Cell) -> SourceScan:
    """Scan the candidate's source without running it.

    Raises:
        OSError: If it cannot be read.
    """
    candidate = cell.candidate
    entry = candidate.defines or candidate.entry
    return scan_files(candidate.code.written(), candidate.language, cell.dtype, entry=entry)


def code_of(cell: Cell) -> CodeMeasures | None:
    """Measure the candidate's source without running it; None if it holds no code.

    Raises:
        OSError: If it cannot be read.
    """
    return None if cell.candidate.origin.no_code else measure_code(cell.candidate.code.written())


def rejected(cell: Cell, scan: SourceScan) -> Outcome | None:
    """Return the outcome of a candidate without code, or with a finding that the policy does not allow; else None."""
    if no_code := cell.candidate.origin.no_code:
        evidence = Evidence(message=f"the answer holds no code: {no_code}")
        return outcome_of(Status.COMPILE_ERROR, Stage.BUILD, evidence)
    for finding in scan.findings:
        if finding.rule in cell.policy.reject_findings:
            where = f"line {finding.line}: " if finding.line is not None else ""
            message = f"{where}{finding.message} (rule {finding.rule}, which policy.reject_findings names)"
            evidence = Evidence(message=message, log=finding.evidence)
            return outcome_of(Status.POLICY_VIOLATION, Stage.BUILD, evidence)
    return None


def is_rejected(cell: Cell) -> bool:
    """Return True if ``cell`` ends before a process starts; False also if its source is unreadable."""
    if cell.candidate.origin.no_code:
        return True
    if not cell.policy.reject_findings:
        return False
    with suppress(OSError):
        return rejected(cell, scan_of(cell)) is not None
    return False


def findings_info(scan: SourceScan) -> tuple[SourceFinding, ...]:
    """Convert the findings to their form in a record."""
    return tuple(
        SourceFinding(rule=found.rule, line=found.line, message=found.message, evidence=found.evidence)
        for found in scan.findings
    )
