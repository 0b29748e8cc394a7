"""A quantised problem's contract: near enough as a whole, and not nearer than quantised arithmetic can be."""

from __future__ import annotations

from typing import Optional

from runner.core.checks import Call, Failed
from runner.core.messages import Evidence
from runner.core.quality import breach
from runner.core.vocab import Status


def check(call: Call) -> Optional[Failed]:
    """First floating output that does not keep the contract."""
    if call.contract is None:
        return None
    for index, quality in enumerate(call.quality):
        message = None if quality is None else breach(call.contract, quality)
        if message is not None:
            return Failed(Status.CONTRACT_BROKEN, Evidence(message=f"output {index}: {message}", output=index))
    return None
