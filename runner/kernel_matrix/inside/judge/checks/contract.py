"""A quantised problem's contract: near enough as a whole, and not nearer than quantised arithmetic can be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional

from kernel_matrix.inside.judge.checks.failure import CheckFailure
from kernel_matrix.inside.judge.quality import breach
from kernel_matrix.model.enums import Status
from kernel_matrix.model.messages import Evidence

if TYPE_CHECKING:
    from kernel_matrix.inside.judge.checks import CheckedCall


def check(call: CheckedCall) -> Optional[CheckFailure]:
    """First floating output that does not keep the contract."""
    if call.contract is None:
        return None
    for index, quality in enumerate(call.quality):
        message = None if quality is None else breach(call.contract, quality)
        if message is not None:
            return CheckFailure(Status.CONTRACT_BROKEN, Evidence(message=f"output {index}: {message}", output=index))
    return None
