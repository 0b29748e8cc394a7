"""Checks of one call.

A check is one file with ``check(call) -> Optional[CheckFailure]``. To add one: one file here and one line in
:data:`_BUILT_IN` and in :data:`kernel_matrix.judge_checks.CHECKS`, or an entry point of another package in the group
``kernel_matrix.checks``, whose file is then shown to the judge in the folder ``plugin_checks``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Callable, Dict, List, Optional, Sequence, Tuple

import torch

from kernel_matrix.inside.judge.checks import (
    aliasing,
    contract,
    distribution,
    inputs,
    mutated_inputs,
    redzones,
    structure,
    values,
)
from kernel_matrix.inside.judge.checks.distribution import UNCOMPARED, Departure, RandomOutputs, departures
from kernel_matrix.inside.judge.checks.failure import CheckFailure
from kernel_matrix.inside.judge.checks.values import ValueComparison, compare, measure
from kernel_matrix.inside.judge.reference import ExpectedOutput
from kernel_matrix.inside.judge.tolerance import Tolerance
from kernel_matrix.inside.wire import OutputsClaim
from kernel_matrix.model.enums import Status
from kernel_matrix.model.messages import ContractSpec

if TYPE_CHECKING:
    from kernel_matrix.inside.judge.quality import Quality


@dataclass(frozen=True)
class CheckedCall:
    """One finished call. Everything in here is the judge's own copy, except for the claim."""

    claim: OutputsClaim
    outputs: Tuple[torch.Tensor, ...]
    """Copies from the output buffer, only of outputs that the claim lists."""
    expected: ExpectedOutput
    tolerance: Tolerance
    inputs_sent: Tuple[torch.Tensor, ...]
    inputs_now: Tuple[torch.Tensor, ...]
    mutates_inputs: bool
    exact: bool = False
    """``True``: floating outputs must be equal too."""
    contract: Optional[ContractSpec] = None
    """Contract of a quantised problem's floating outputs, which replaces the tolerance."""
    random: Optional[RandomOutputs] = None
    """Randomness of a problem's outputs; ``None`` if none is random."""
    damage: str = ""
    """Description of the memory around the lent buffers that was changed; empty if none was."""

    @cached_property
    def comparisons(self) -> Sequence[ValueComparison]:
        """Comparison of each output with the reference; cached, because it reads every element of every output.

        Random outputs are not compared and have no errors here.
        """
        varies = (False,) * len(self.outputs) if self.random is None else self.random.varies
        if all(varies):
            return [UNCOMPARED] * len(self.outputs)
        allowances = self.expected.allowances(self.tolerance)
        rows = zip(self.outputs, self.expected.outputs, self.expected.trusted, allowances, varies)
        return [
            UNCOMPARED if random else compare(got, want, same, allowed, exact=self.exact)
            for got, want, same, allowed, random in rows
        ]

    @cached_property
    def departures(self) -> Sequence[Optional[Departure]]:
        """Distance of each random output from the reference's distribution; ``None`` for all others."""
        if self.random is None:
            return [None] * len(self.outputs)
        return departures(self.outputs, self.random, self.tolerance.rtol)

    @cached_property
    def quality(self) -> Sequence[Optional[Quality]]:
        """Similarity of each output as a whole; ``None`` for integers and booleans, and without a contract."""
        from kernel_matrix.inside.judge.quality import measure_quality  # noqa: PLC0415  # only quantised problems need it

        if self.contract is None:
            return [None] * len(self.outputs)
        pairs = zip(self.outputs, self.expected.outputs)
        return [measure_quality(got, want) if got.is_floating_point() else None for got, want in pairs]


@dataclass(frozen=True)
class CallJudgement:
    """The result of all checks on one call."""

    failed: Optional[CheckFailure]
    max_error: Optional[float]
    error_ratio: Optional[float]
    quality: Tuple[Quality, ...] = ()
    """Similarity of each floating output of a quantised problem."""


Check = Callable[[CheckedCall], Optional[CheckFailure]]


_BUILT_IN: Dict[str, Check] = {
    "structure": structure.check,
    "aliasing": aliasing.check,
    "redzones": redzones.check,
    "inputs": inputs.check,
    "values": values.check,
    "mutated_inputs": mutated_inputs.check,
    "contract": contract.check,
    "distribution": distribution.check,
}

_ADDED = Path(__file__).parents[3] / "plugin_checks"
"""Folder of the checks of other packages; absent if there are none."""


@lru_cache(maxsize=None)
def checks() -> Dict[str, Check]:
    """Return every check in the order they run: the built-in ones first, because others may rely on their findings.

    Raises:
        ImportError: A check of another package cannot be imported; no call may be judged without it.
    """
    added = sorted(file.stem for file in _ADDED.glob("*.py"))
    return {**_BUILT_IN, **{name: import_module("kernel_matrix.plugin_checks." + name).check for name in added}}


def judge_call(call: CheckedCall) -> CallJudgement:
    """Run every check in order; the first failure decides."""
    failures: List[CheckFailure] = []
    for check in checks().values():
        failed = check(call)
        if failed is not None:
            failures.append(failed)
            break
    comparable = not failures or failures[0].status not in _INCOMPARABLE
    max_error, ratio = _measured(call) if comparable else (None, None)
    quality = tuple(found for found in call.quality if found is not None) if comparable else ()
    return CallJudgement(failures[0] if failures else None, max_error, ratio, quality)


def _measured(call: CheckedCall) -> Tuple[Optional[float], Optional[float]]:
    """Return the largest absolute error (``None`` if all outputs are random) and the largest share of the tolerance."""
    error, ratio = measure(call)
    shares = [departure.ratio for departure in call.departures if departure is not None]
    if ratio is None or not shares:
        return error, ratio
    return (None if len(shares) == len(call.outputs) else error), max(ratio, *shares)


_INCOMPARABLE = frozenset(
    {Status.INCORRECT_STRUCTURE, Status.INCORRECT_SHAPE, Status.INCORRECT_DTYPE, Status.INCORRECT_DEVICE}
)
