"""What one call is checked for.

A check is one file with ``check(call) -> Optional[Failed]`` and one line in :func:`checks`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Callable, Dict, List, Optional, Sequence, Tuple

import torch

from runner.core.messages import Evidence
from runner.core.reference import Expected
from runner.core.tolerance import Tolerance
from runner.core.vocab import Status
from runner.core.wire import OutputsClaim

if TYPE_CHECKING:
    from runner.core.checks.values import Comparison


@dataclass(frozen=True)
class Call:
    """One finished call, as the judge sees it: everything in here is the judge's own copy but the claim."""

    claim: OutputsClaim
    outputs: Tuple[torch.Tensor, ...]
    """Copied out of the output buffer; only those the claim says were copied in."""
    expected: Expected
    tolerance: Tolerance
    inputs_sent: Tuple[torch.Tensor, ...]
    inputs_now: Tuple[torch.Tensor, ...]
    mutates_inputs: bool

    @cached_property
    def comparisons(self) -> Sequence[Comparison]:
        """Each output against the reference; made once, since it reads every element of every output."""
        from runner.core.checks.values import compare  # noqa: PLC0415  # it imports Call from here

        triples = zip(self.outputs, self.expected.outputs, self.expected.trusted)
        return [compare(got, want, same, self.tolerance) for got, want, same in triples]


@dataclass(frozen=True)
class Failed:
    """Why a call does not pass."""

    status: Status
    evidence: Evidence


@dataclass(frozen=True)
class Judgement:
    """The result of all checks on one call."""

    failed: Optional[Failed]
    max_error: Optional[float]
    error_ratio: Optional[float]


Check = Callable[[Call], Optional[Failed]]


def checks() -> Dict[str, Check]:
    """Every check, in the order they run."""
    from runner.core.checks import inputs, structure, values  # noqa: PLC0415  # they import Call and Failed from here

    return {
        "structure": structure.check,
        "inputs": inputs.check,
        "values": values.check,
    }


def judge_call(call: Call) -> Judgement:
    """Run every check in order; the first failure decides."""
    from runner.core.checks.values import measure  # noqa: PLC0415

    failures: List[Failed] = []
    for check in checks().values():
        failed = check(call)
        if failed is not None:
            failures.append(failed)
            break
    comparable = not failures or failures[0].status not in _INCOMPARABLE
    max_error, ratio = measure(call) if comparable else (None, None)
    return Judgement(failures[0] if failures else None, max_error, ratio)


_INCOMPARABLE = frozenset(
    {Status.INCORRECT_STRUCTURE, Status.INCORRECT_SHAPE, Status.INCORRECT_DTYPE, Status.INCORRECT_DEVICE}
)
