"""Outputs must be memory of their own, unless the reference's are not either."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional

from kernel_matrix.inside.judge.checks.failure import CheckFailure
from kernel_matrix.inside.wire import OutputAlias
from kernel_matrix.model.enums import Status
from kernel_matrix.model.messages import Evidence

if TYPE_CHECKING:
    from kernel_matrix.inside.judge.checks import CheckedCall

_WORDS = {
    OutputAlias.INPUT: "lies in the memory of the inputs",
    OutputAlias.OUTPUT: "lies in the memory of another output",
    OutputAlias.EARLIER: "lies in the memory of an output of the call before",
}


def check(call: CheckedCall) -> Optional[CheckFailure]:
    """First output whose memory is also something else's, as the worker saw it."""
    views = call.expected.views or (False,) * len(call.claim.outputs)
    for index, (output, is_view) in enumerate(zip(call.claim.outputs, views)):
        if output.alias is not OutputAlias.NONE and not is_view:
            message = f"output {index} {_WORDS[output.alias]}; the reference's is memory of its own"
            return CheckFailure(Status.OUTPUT_ALIASED, Evidence(message=message, output=index))
    return None
