"""Why a call does not pass a check."""

from __future__ import annotations

from dataclasses import dataclass

from kernel_matrix.model.enums import Status
from kernel_matrix.model.messages import Evidence


@dataclass(frozen=True)
class CheckFailure:
    """Why a call does not pass."""

    status: Status
    evidence: Evidence
