"""Running a candidate under compute-sanitizer, and parsing the tool's output."""

from __future__ import annotations

import re
from collections.abc import Mapping

from kernel_matrix.attempt.outcome import outcome_of
from kernel_matrix.model.enums import Stage, Status
from kernel_matrix.model.messages import Evidence
from kernel_matrix.plan import Cell
from kernel_matrix.platforms import Gpu
from kernel_matrix.platforms.registry import get_platform
from kernel_matrix.results.record import Outcome

NO_SANITIZER = "no_sanitizer"  # label: the sanitizer was asked for, and is not installed or did not finish

_SUMMARY = re.compile(r"^=+ (?:ERROR|RACECHECK) SUMMARY: (\d+) (?:error|hazard)", re.MULTILINE)
_FINDING = re.compile(r"^=+ (?!COMPUTE-SANITIZER|(?:ERROR|RACECHECK) SUMMARY)\S.*$", re.MULTILINE)
_LOG_TAIL = 8 << 10

# Tool → status for its findings; those of other tools are runtime errors.
_STATUSES: Mapping[str, Status] = {"memcheck": Status.OUT_OF_BOUNDS}


def tools_for(cell: Cell, gpu: Gpu) -> tuple[str, ...]:
    """Return the tools that the candidate of ``cell`` runs under on ``gpu``; none on a CPU."""
    return cell.policy.sanitize if get_platform(gpu.platform).SANITIZER else ()


def was_sanitized(log: str) -> bool:
    """Return True if a tool ran to its end, which is where it prints its summary.

    Args:
        log: Tail of the candidate's output.
    """
    return _SUMMARY.search(log) is not None


def sanitizer_outcome(tool: str, log: str) -> Outcome | None:
    """Return the outcome for the tool's findings; None if there are none."""
    summaries = _SUMMARY.findall(log)
    if not summaries or int(summaries[-1]) == 0:
        return None
    found = _FINDING.search(log)
    words = found[0].lstrip("= ") if found is not None else f"{summaries[-1]} errors"
    evidence = Evidence(message=f"compute-sanitizer ({tool}): {words}"[:500], log=log[-_LOG_TAIL:])
    return outcome_of(_STATUSES.get(tool, Status.RUNTIME_ERROR), Stage.VERIFY, evidence)
