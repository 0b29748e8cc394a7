"""The output of compute-sanitizer."""

from __future__ import annotations

import re
from collections.abc import Mapping

from kernel_matrix.model.enums import Status
from kernel_matrix.platforms import SanitizerReport

_SUMMARY = re.compile(r"^=+ (?:ERROR|RACECHECK) SUMMARY: (\d+) (?:error|hazard)", re.MULTILINE)
_FINDING = re.compile(r"^=+ (?!COMPUTE-SANITIZER|(?:ERROR|RACECHECK) SUMMARY)\S.*$", re.MULTILINE)

_STATUSES: Mapping[str, Status] = {"memcheck": Status.OUT_OF_BOUNDS}
"""Tool → status for its findings; those of other tools are runtime errors."""


def sanitizer_report(tool: str, log: str) -> SanitizerReport | None:
    """Read the summary that a tool prints at its end, and its first finding."""
    summaries = _SUMMARY.findall(log)
    if not summaries:
        return None
    if int(summaries[-1]) == 0:
        return SanitizerReport()
    found = _FINDING.search(log)
    words = found[0].lstrip("= ") if found is not None else f"{summaries[-1]} errors"
    return SanitizerReport(
        finding=f"compute-sanitizer ({tool}): {words}", status=_STATUSES.get(tool, Status.RUNTIME_ERROR)
    )
