"""Stage one: exactly the reference's structure, shapes, dtypes and device, and no view where a result is due."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional, Tuple

from kernel_matrix.inside.judge.checks.failure import CheckFailure
from kernel_matrix.inside.memory import dtype_name
from kernel_matrix.inside.wire import OutputClaim
from kernel_matrix.model.enums import Status
from kernel_matrix.model.messages import Evidence

if TYPE_CHECKING:
    from kernel_matrix.inside.judge.checks import CheckedCall


def check(call: CheckedCall) -> Optional[CheckFailure]:
    """Compare what came back with what the reference returns, before any value is looked at."""
    wanted = call.expected
    if call.claim.structure != wanted.structure or len(call.claim.outputs) != len(wanted.outputs):
        got = f"{call.claim.structure.name.lower()} of {len(call.claim.outputs)}"
        expected = f"{wanted.structure.name.lower()} of {len(wanted.outputs)}"
        return _failed(Status.INCORRECT_STRUCTURE, 0, "returned another structure", expected, got)
    for index, (output, trusted) in enumerate(zip(call.claim.outputs, wanted.trusted)):
        failed = _check_one(index, output, tuple(trusted.shape), dtype_name(trusted.dtype))
        if failed is None and trusted.is_contiguous() and not output.contiguous:
            what = "is not contiguous, as the reference's is: elements left where they were are work left undone"
            failed = _failed(Status.INCORRECT_STRUCTURE, index, what, "", "")
        if failed is not None:
            return failed
    return None


def _check_one(index: int, output: OutputClaim, shape: Tuple[int, ...], dtype: str) -> Optional[CheckFailure]:
    if output.shape != shape:
        return _failed(Status.INCORRECT_SHAPE, index, "has another shape", str(list(shape)), str(list(output.shape)))
    if output.dtype != dtype:
        return _failed(Status.INCORRECT_DTYPE, index, "has another dtype", dtype, output.dtype)
    if not output.same_device:
        return _failed(Status.INCORRECT_DEVICE, index, "lives on another device than the inputs", "", "")
    if not output.copied:
        return _failed(Status.INCORRECT_STRUCTURE, index, "was not handed over", "", "")
    return None


def _failed(status: Status, index: int, what: str, expected: str, got: str) -> CheckFailure:
    message = f"output {index} {what}" + (f": expected {expected}, got {got}" if expected else "")
    return CheckFailure(status, Evidence(message=message, output=index, expected=expected, got=got))
