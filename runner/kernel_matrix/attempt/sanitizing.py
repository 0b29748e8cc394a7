"""Running a candidate once more under compute-sanitizer, and reading what that printed."""

from __future__ import annotations

import re
from collections.abc import Mapping

from kernel_matrix.attempt.outcome import outcome_of
from kernel_matrix.model.enums import Stage, Status
from kernel_matrix.model.messages import Evidence
from kernel_matrix.plan import Cell
from kernel_matrix.platforms import Gpu
from kernel_matrix.results.record import Outcome

NO_SANITIZER = "no_sanitizer"
"""Label of a session that was to run under compute-sanitizer and did not: it is not there, or did not finish."""

_SUMMARY = re.compile(r"^=+ (?:ERROR|RACECHECK) SUMMARY: (\d+) (?:error|hazard)", re.MULTILINE)
_FINDING = re.compile(r"^=+ (?!COMPUTE-SANITIZER|(?:ERROR|RACECHECK) SUMMARY)\S.*$", re.MULTILINE)
_LOG_TAIL = 8 << 10

_STATUSES: Mapping[str, Status] = {"memcheck": Status.OUT_OF_BOUNDS}
"""Tool → what its findings make of a candidate; those of any other tool are errors of the run."""


def tools_for(cell: Cell, gpu: Gpu) -> tuple[str, ...]:
    """The tools that the candidate of ``cell`` is run under on ``gpu``: they check what runs on a GPU."""
    return cell.policy.sanitize if gpu.vendor != "cpu" else ()


def was_sanitized(log: str) -> bool:
    """Whether a tool ran to its end: its summary is the last thing that it prints.

    :param log: tail of what the candidate's process printed.
    """
    return _SUMMARY.search(log) is not None


def sanitizer_outcome(tool: str, log: str) -> Outcome | None:
    """What the tool's findings make of the candidate; null where there are none."""
    summaries = _SUMMARY.findall(log)
    if not summaries or int(summaries[-1]) == 0:
        return None
    found = _FINDING.search(log)
    words = found[0].lstrip("= ") if found is not None else f"{summaries[-1]} errors"
    evidence = Evidence(message=f"compute-sanitizer ({tool}): {words}"[:500], log=log[-_LOG_TAIL:])
    return outcome_of(_STATUSES.get(tool, Status.RUNTIME_ERROR), Stage.VERIFY, evidence)
