"""Inputs must come back as they were sent, but for those that the problem itself writes into."""

from __future__ import annotations

from typing import Optional

from runner.core.bits import same_bits
from runner.core.checks import Call, Failed
from runner.core.messages import Evidence
from runner.core.vocab import Status


def check(call: Call) -> Optional[Failed]:
    """Compare every input bit for bit with what was sent; see :mod:`runner.core.checks.left` for the others."""
    written = call.expected.written if call.mutates_inputs else ()
    for index, (sent, now) in enumerate(zip(call.inputs_sent, call.inputs_now)):
        if index not in written and not same_bits(sent, now):
            message = f"input {index} was written to during the call"
            return Failed(Status.INPUT_MODIFIED, Evidence(message=message))
    return None
