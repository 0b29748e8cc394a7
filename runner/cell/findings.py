"""What reading a candidate's source found, and what the policy makes of it."""

from __future__ import annotations

from contextlib import suppress

from runner.cell.settling import outcome_of
from runner.core.messages import Evidence
from runner.core.vocab import Stage, Status
from runner.plan import Cell
from runner.results.record import Outcome, SourceFinding
from runner.scan import Scan, scan_files


def scan_of(cell: Cell) -> Scan:
    """What is to be known of the candidate's source; nothing of it is run.

    :raises OSError: when it cannot be read.
    """
    candidate = cell.candidate
    entry = candidate.defines or candidate.entry
    return scan_files(candidate.code.written(), candidate.language, cell.dtype, entry=entry)


def rejected(cell: Cell, scan: Scan) -> Outcome | None:
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


def findings_told(scan: Scan) -> tuple[SourceFinding, ...]:
    """The findings as records carry them."""
    return tuple(
        SourceFinding(rule=found.rule, line=found.line, message=found.message, evidence=found.evidence)
        for found in scan.findings
    )
