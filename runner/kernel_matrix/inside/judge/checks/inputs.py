"""Inputs must come back as they were sent, but for those that the problem itself writes into."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional, Sequence

from kernel_matrix.inside.judge.bits import same_bits
from kernel_matrix.inside.judge.checks.failure import CheckFailure
from kernel_matrix.model.enums import Status
from kernel_matrix.model.messages import Evidence

if TYPE_CHECKING:
    import torch

    from kernel_matrix.inside.judge.checks import CheckedCall


def check(call: CheckedCall) -> Optional[CheckFailure]:
    """Compare every input bit for bit with what was sent; see :mod:`.mutated_inputs` for the others."""
    return failure_of(call.inputs_sent, call.inputs_now, call.expected.written if call.mutates_inputs else ())


def failure_of(
    sent: Sequence[torch.Tensor], now: Sequence[torch.Tensor], written: Sequence[int]
) -> Optional[CheckFailure]:
    """Return the failure if an input changed that is not among those that the problem writes into."""
    for index, (before, after) in enumerate(zip(sent, now)):
        if index not in written and after is not before and not same_bits(before, after):
            message = f"input {index} was written to during the call"
            return CheckFailure(Status.INPUT_MODIFIED, Evidence(message=message))
    return None
