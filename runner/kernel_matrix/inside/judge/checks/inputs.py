"""Inputs must come back as they were sent, but for those that the problem itself writes into."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional

from kernel_matrix.inside.judge.bits import same_bits
from kernel_matrix.inside.judge.checks.failure import CheckFailure
from kernel_matrix.model.enums import Status
from kernel_matrix.model.messages import Evidence

if TYPE_CHECKING:
    from kernel_matrix.inside.judge.checks import CheckedCall


def check(call: CheckedCall) -> Optional[CheckFailure]:
    """Compare every input bit for bit with what was sent; see :mod:`.mutated_inputs` for the others."""
    written = call.expected.written if call.mutates_inputs else ()
    for index, (sent, now) in enumerate(zip(call.inputs_sent, call.inputs_now)):
        if index not in written and now is not sent and not same_bits(sent, now):
            message = f"input {index} was written to during the call"
            return CheckFailure(Status.INPUT_MODIFIED, Evidence(message=message))
    return None
