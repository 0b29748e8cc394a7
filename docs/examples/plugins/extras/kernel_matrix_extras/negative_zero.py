"""The check ``negative_zero``: a candidate may not return -0.0 where the reference has 0.0.

The judge runs this file alone: it may import the standard library, torch, ``kernel_matrix.inside`` and
``kernel_matrix.model``. ``call`` is a :class:`kernel_matrix.inside.judge.checks.CheckedCall`; its tensors are the
judge's own copies.
"""

from __future__ import annotations

from typing import Any

from kernel_matrix.inside.judge.checks.failure import CheckFailure
from kernel_matrix.model.enums import Status
from kernel_matrix.model.messages import Evidence


def check(call: Any) -> CheckFailure | None:
    """Compare the signs of zeros."""
    for index, (output, wanted) in enumerate(zip(call.outputs, call.expected.outputs)):  # noqa: B905  # Python 3.9 inside
        if output.is_floating_point():
            zero = (output == 0) & (wanted == 0)
            wrong = int((zero & (output.signbit() != wanted.signbit())).sum())
            if wrong:
                message = f"output {index}: {wrong} zeros have the wrong sign"
                return CheckFailure(Status.INCORRECT_VALUES, Evidence(message=message))
    return None
