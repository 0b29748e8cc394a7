"""Memory around the lent buffers must be as it was."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional

from kernel_matrix.inside.judge.checks.failure import CheckFailure
from kernel_matrix.model.enums import Status
from kernel_matrix.model.messages import Evidence

if TYPE_CHECKING:
    from kernel_matrix.inside.judge.checks import CheckedCall


def check(call: CheckedCall) -> Optional[CheckFailure]:
    """Whether a write went past the end, or before the beginning, of an input or output."""
    if not call.damage:
        return None
    return CheckFailure(Status.OUT_OF_BOUNDS, Evidence(message=f"the call wrote outside of its buffers: {call.damage}"))
