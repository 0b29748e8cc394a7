"""Failure of a check."""

from __future__ import annotations

from dataclasses import dataclass

from kernel_matrix.model.enums import Status
from kernel_matrix.model.messages import Evidence


@dataclass(frozen=True)
class CheckFailure:
    """Status and evidence of a check that a call fails."""

    status: Status
    evidence: Evidence
