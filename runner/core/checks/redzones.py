"""Memory around the lent buffers must be as it was."""

from __future__ import annotations

from typing import Optional

from runner.core.checks import Call, Failed
from runner.core.messages import Evidence
from runner.core.vocab import Status


def check(call: Call) -> Optional[Failed]:
    """Whether a write went past the end, or before the beginning, of an input or output."""
    if not call.damage:
        return None
    return Failed(Status.OUT_OF_BOUNDS, Evidence(message=f"the call wrote outside of its buffers: {call.damage}"))
