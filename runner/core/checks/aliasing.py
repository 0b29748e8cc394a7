"""Outputs must be memory of their own, unless the reference's are not either."""

from __future__ import annotations

from typing import Optional

from runner.core.checks import Call, Failed
from runner.core.messages import Evidence
from runner.core.vocab import Status
from runner.core.wire import Alias

_WORDS = {
    Alias.INPUT: "lies in the memory of the inputs",
    Alias.OUTPUT: "lies in the memory of another output",
    Alias.EARLIER: "lies in the memory of an output of the call before",
}


def check(call: Call) -> Optional[Failed]:
    """First output whose memory is also something else's, as the worker saw it."""
    views = call.expected.views or (False,) * len(call.claim.outputs)
    for index, (output, is_view) in enumerate(zip(call.claim.outputs, views)):
        if output.alias is not Alias.NONE and not is_view:
            message = f"output {index} {_WORDS[output.alias]}; the reference's is memory of its own"
            return Failed(Status.OUTPUT_ALIASED, Evidence(message=message, output=index))
    return None
