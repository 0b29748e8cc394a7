"""Inputs that the problem writes into must hold what the reference leaves there: an optimizer's state, say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional

from kernel_matrix.inside.judge.checks.failure import CheckFailure
from kernel_matrix.inside.judge.checks.values import compare
from kernel_matrix.model.enums import Status
from kernel_matrix.model.messages import Evidence

if TYPE_CHECKING:
    from kernel_matrix.inside.judge.checks import CheckedCall


def check(call: CheckedCall) -> Optional[CheckFailure]:
    """Compare what each of them holds now, within the tolerance of an output."""
    left = call.expected.left
    if left is None or not call.mutates_inputs or call.random is not None:
        return None
    rows = zip(call.expected.written, left.outputs, left.trusted, left.allowances(call.tolerance))
    for index, wanted, same, allowed in rows:
        found = compare(call.inputs_now[index], wanted, same, allowed)
        if found.nonfinite or found.mismatched:
            wrong = max(found.mismatched, found.nonfinite)
            message = f"input {index} is written into, and {wrong} of its {found.elements} elements hold something else"
            return CheckFailure(Status.INCORRECT_VALUES, Evidence(message=f"{message} than the reference leaves there"))
    return None
