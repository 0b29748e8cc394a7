"""Running a candidate under a sanitizer of device code, and what it found."""

from __future__ import annotations

from kernel_matrix.attempt.outcome import outcome_of
from kernel_matrix.model.enums import Stage
from kernel_matrix.model.messages import Evidence
from kernel_matrix.plan import Cell
from kernel_matrix.platforms import Gpu
from kernel_matrix.platforms.registry import get_platform
from kernel_matrix.results.record import Outcome

NO_SANITIZER = "no_sanitizer"  # label: the sanitizer was asked for, and is not installed or did not finish

_LOG_TAIL = 8 << 10


def tools_for(cell: Cell, gpu: Gpu) -> tuple[str, ...]:
    """Return the tools that the candidate of ``cell`` runs under on ``gpu``; none on a CPU, and for several ranks."""
    return cell.policy.sanitize if get_platform(gpu.platform).SANITIZER and cell.problem.ranks == 1 else ()


def was_sanitized(gpu: Gpu, tool: str, log: str) -> bool:
    """Return True if ``tool`` ran to its end on ``gpu``.

    Args:
        gpu: The device.
        tool: Name of the tool.
        log: Tail of the candidate's output.
    """
    return get_platform(gpu.platform).sanitizer_report(tool, log) is not None


def sanitizer_outcome(gpu: Gpu, tool: str, log: str) -> Outcome | None:
    """Return the outcome for the tool's findings; None if there are none."""
    report = get_platform(gpu.platform).sanitizer_report(tool, log)
    if report is None or not report.finding:
        return None
    evidence = Evidence(message=report.finding[:500], log=log[-_LOG_TAIL:])
    return outcome_of(report.status, Stage.VERIFY, evidence)
