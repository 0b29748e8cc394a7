"""What reading a candidate's source found, and what the policy makes of it."""

from __future__ import annotations

from contextlib import suppress

from kernel_matrix.attempt.outcome import outcome_of
from kernel_matrix.model.enums import Stage, Status
from kernel_matrix.model.messages import Evidence
from kernel_matrix.plan import Cell
from kernel_matrix.results.record import Outcome, SourceFinding
from kernel_matrix.scan import SourceScan, scan_files


def scan_of(cell: Cell) -> SourceScan:
    """What is to be known of the candidate's source; nothing of it is run.

    :raises OSError: when it cannot be read.
    """
    candidate = cell.candidate
    entry = candidate.defines or candidate.entry
    return scan_files(candidate.code.written(), candidate.language, cell.dtype, entry=entry)


def rejected(cell: Cell, scan: SourceScan) -> Outcome | None:
    """The outcome of a candidate with a finding that the policy does not allow; null where there is none."""
    for finding in scan.findings:
        if finding.rule in cell.policy.reject_findings:
            where = f"line {finding.line}: " if finding.line is not None else ""
            message = f"{where}{finding.message} (rule {finding.rule}, which policy.reject_findings names)"
            evidence = Evidence(message=message, log=finding.evidence)
            return outcome_of(Status.POLICY_VIOLATION, Stage.BUILD, evidence)
    return None


def is_rejected(cell: Cell) -> bool:
    """Whether ``cell`` ends before anything is started for it; a source that cannot be read is somebody else's find."""
    if not cell.policy.reject_findings:
        return False
    with suppress(OSError):
        return rejected(cell, scan_of(cell)) is not None
    return False


def findings_told(scan: SourceScan) -> tuple[SourceFinding, ...]:
    """The findings as records carry them."""
    return tuple(
        SourceFinding(rule=found.rule, line=found.line, message=found.message, evidence=found.evidence)
        for found in scan.findings
    )
