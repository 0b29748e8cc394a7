"""Answer to one evaluation: what a record says of a candidate, in the form that services and generators exchange."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, fields
from typing import Any, Mapping, Optional

from kernel_matrix.model.enums import Fault, Status

WORKLOAD_COLUMNS = (
    *("workload_status", "worst_error_ratio", "candidate_median_ns", "baseline_median_ns"),
    *("speedup", "speedup_limit", "verdict", "verdict_reason", "verdict_low", "verdict_high", "grade"),
    *("share_of_peak", "bound"),
)
"""Columns of the table ``cells`` that an evaluation tells of each workload."""
_NAME_LENGTH = 16


def source_name(source: str, suffix: str = "", language: str = "") -> str:
    """Return the name that a service gives to a source: equal for equal ones of the same declared language."""
    # A suffix begins with a point, and a language with a letter, so no source can pass for another one of another kind.
    return hashlib.sha256((language + suffix + source).encode()).hexdigest()[:_NAME_LENGTH]


@dataclass(frozen=True)
class EvaluationResult:
    """Result of the evaluation of one candidate."""

    status: str
    """A value of :class:`~kernel_matrix.model.enums.Status`."""
    fault: str
    """Party at fault. ``infra``: the machine failed, and nothing is known about the candidate."""
    stage: Optional[str] = None
    """Last stage that was reached; None if there is no record."""
    evidence: Mapping[str, Any] = field(default_factory=dict)
    """Facts behind the status, such as an excerpt of the compiler's output, or the worst element."""
    workloads: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Name → column of the table ``cells`` → value: times, comparison with eager, share of peak. The columns are those
    of :data:`WORKLOAD_COLUMNS`, without those that have no value."""
    record: Optional[str] = None
    """Name of the record without its ending."""

    @property
    def is_score(self) -> bool:
        """True if this says something about the candidate: the machine and the problem are not at fault."""
        return self.fault in (Fault.NONE.value, Fault.CANDIDATE.value)

    @property
    def is_right(self) -> bool:
        """True if the candidate's outputs were right wherever they were compared."""
        return self.status in (Status.PASSED.value, Status.VERIFIED.value)

    @staticmethod
    def from_json(document: Mapping[str, Any]) -> EvaluationResult:
        """Read the form that :func:`kernel_matrix.model.messages.to_json` writes; unknown fields are left out.

        Raises:
            TypeError: A field that must be there is absent.
        """
        names = {one.name for one in fields(EvaluationResult)}
        return EvaluationResult(**{name: value for name, value in document.items() if name in names})
