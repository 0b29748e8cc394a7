"""Check that the memory around the lent buffers is unchanged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional

from kernel_matrix.inside.judge.checks.failure import CheckFailure
from kernel_matrix.model.enums import Status
from kernel_matrix.model.messages import Evidence

if TYPE_CHECKING:
    from kernel_matrix.inside.judge.checks import CheckedCall


def check(call: CheckedCall) -> Optional[CheckFailure]:
    """Return a failure if memory before or after an input or output was written to."""
    return failure_of(call.damage)


def failure_of(damage: str) -> Optional[CheckFailure]:
    """Return the failure for this description of damage; None if it is empty."""
    if not damage:
        return None
    return CheckFailure(Status.OUT_OF_BOUNDS, Evidence(message=f"the call wrote outside of its buffers: {damage}"))
