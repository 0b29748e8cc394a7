"""Controls of a problem: outputs that must not pass, and how its answer depends on inputs and precision.

Only the reference runs here, no contestant.
"""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import replace
from typing import Any, Callable, Iterable, Iterator, List, Optional, Sequence, Tuple, TypeVar

import torch

from kernel_matrix.inside.exception_kinds import classify
from kernel_matrix.inside.input_generation import EXACT_BITS, IntegerRange, map_tensors, tensors_in
from kernel_matrix.inside.input_properties import lines_of
from kernel_matrix.inside.judge.bits import same_bits
from kernel_matrix.inside.judge.checks.distribution import RandomOutputs, departures
from kernel_matrix.inside.judge.checks.values import compare, passes
from kernel_matrix.inside.judge.reference import ExpectedOutput, ReferenceModel
from kernel_matrix.inside.judge.session_ended import finding
from kernel_matrix.inside.judge.tolerance import (
    LONGEST,
    AllowedError,
    Tolerance,
    chunks,
    difference,
    largest,
    spread_of,
)
from kernel_matrix.inside.wire import CallFailure
from kernel_matrix.model.enums import Dtype, InputMode, Stage, Status

Found = TypeVar("Found")

OTHER_INPUTS = 2  # further sets of inputs that show how much a single number varies

# Share of an output's spread that two runs on equal inputs may differ by at any element because of the order of sums,
# which atomic additions leave open. Rounding differs by far less, random numbers by far more.
MOST_NOISE = 0.01

INSENSITIVE_BELOW = 1e-3  # least change of the output, as a share of its spread, for an input drawn anew


def _unless_memory_ends(control: Callable[..., Optional[Found]]) -> Callable[..., Optional[Found]]:
    """Return None if the control needs too much memory; only for controls that no verdict depends on."""

    @functools.wraps(control)
    def tried(*arguments: Any) -> Optional[Found]:
        try:
            return control(*arguments)
        except (MemoryError, RuntimeError) as error:  # torch raises RuntimeError for the device and for the host
            if classify(error) is CallFailure.MEMORY:
                return None
            raise

    return tried


def accepts(outputs: Sequence[torch.Tensor], expected: ExpectedOutput, tolerance: Tolerance) -> bool:
    """Return True if these outputs would pass for the expected ones."""
    rows = zip(outputs, expected.outputs, expected.trusted, expected.allowances(tolerance))
    return all(passes(got, want, same, allowed) for got, want, same, allowed in rows)


@_unless_memory_ends
def eased(
    reference: ReferenceModel, expected: ExpectedOutput, tolerance: Tolerance, mode: InputMode, index: int
) -> Optional[ExpectedOutput]:
    """Allow in ``expected`` the trusted implementation's error on other inputs of this mode, if it is larger."""
    return expected.eased(reference.expect(reference.draw(mode, "eased", index)), tolerance)


@_unless_memory_ends
def repeats_itself(reference: ReferenceModel, inputs: List[Any]) -> Optional[bool]:
    """Return True if the reference returns the same bits in two runs on equal inputs."""
    first = reference.answer(inputs)
    return all(map(same_bits, reference.answer(inputs), first))


def check_repeatable(
    reference: ReferenceModel, inputs: List[Any], expected: ExpectedOutput, tolerance: Tolerance
) -> None:
    """Check that the reference agrees with itself, up to rounding.

    Raises:
        SessionEnded: ``invalid_problem``.
    """
    again = reference.answer(inputs)
    if all(map(same_bits, again, expected.trusted)):
        return
    itself = replace(expected, outputs=expected.trusted, some=None, _allowances={})
    pairs = zip(itself.allowances(tolerance), expected.allowances(tolerance))
    allowed = [exact.eased(usual.at_most(MOST_NOISE)) for exact, usual in pairs]
    if not all(map(passes, again, expected.trusted, expected.trusted, allowed)):
        message = "the reference differs between two runs on equal inputs"
        raise _invalid(f"{message}; if outputs are random numbers, set random = true in problem.toml")


def check_varying(reference: ReferenceModel, inputs: List[Any], expected: ExpectedOutput) -> Tuple[bool, ...]:
    """Return which outputs are random: those that differ between two runs of the reference on equal inputs.

    Raises:
        SessionEnded: ``invalid_problem`` if no output differs.
    """
    varies = tuple(not same_bits(*pair) for pair in zip(reference.answer(inputs), expected.trusted))
    if not any(varies):
        raise _invalid("the problem declares random outputs, but the reference returns the same in two runs")
    return varies


def check_distribution(expected: ExpectedOutput, randomness: Callable[[], RandomOutputs], rtol: float) -> None:
    """Check for each random output that the reference's own passes, and that zeros and a constant do not.

    Args:
        expected: Outputs of the reference.
        randomness: Makes the object that judges one call.
        rtol: Relative tolerance.

    Raises:
        SessionEnded: ``invalid_problem``.
    """
    for index, departure in enumerate(departures(expected.trusted, randomness(), rtol)):
        if departure is not None and departure.ratio > 1:
            raise _invalid(f"output {index} of the reference is not accepted as its own: {departure.words}")
    for what, empty in (("zeros", torch.zeros_like), ("a constant", _constant)):
        found = departures([empty(tensor) for tensor in expected.trusted], randomness(), rtol)
        if any(departure is not None and departure.ratio <= 1 for departure in found):
            raise _invalid(f"{what} would pass for random numbers: there are too few, or they hardly vary")


def reduction_length(reference: ReferenceModel, inputs: List[Any]) -> float:
    """Return from shapes how many numbers a sum can have.

    It leaves at least one dimension of a tensor, or as many elements as the smallest output has.
    """
    floating = [t for t in (*tensors_in(inputs), *reference.state.values()) if t.is_floating_point() and t.numel()]
    smallest = min((like.numel() for like in reference.like if like.numel()), default=1)
    return max((max(_longest_sum(t.shape), t.numel() / smallest) for t in floating), default=1.0)


def largest_partial_sums(inputs: List[Any]) -> float:
    """Return how large the sums so far become when the elements of a line of an input are added one after another.

    It is the root of the sum of their squares, as a share of the whole sum and the spread of such sums; of the line
    where it is largest. Of n independent elements it is about the root of n; where rows are sorted, or have a trend,
    and their sums cancel, it is about n.
    """
    floating = [tensor for tensor in tensors_in(inputs) if tensor.is_floating_point() and tensor.numel()]
    return max((_partial_sums(tensor, dim) for tensor in floating for dim in range(tensor.dim())), default=0.0)


def _partial_sums(tensor: torch.Tensor, dim: int) -> float:
    lines = lines_of(tensor, dim)[:, :LONGEST]
    if lines.shape[1] < 2:  # nothing is added
        return 0.0
    sums = lines.cumsum(dim=1)
    spread = lines.std(dim=1).mean() * math.sqrt(lines.shape[1])
    shares = torch.linalg.vector_norm(sums, dim=1) / (sums[:, -1].abs() + spread)
    return float(shares.nan_to_num(nan=0.0, posinf=0.0).max())


def _longest_sum(shape: torch.Size) -> int:
    sizes = [size for size in shape if size > 1]
    return math.prod(sizes) // min(sizes) if len(sizes) > 1 else max(sizes, default=1)


def variations(reference: ReferenceModel, expected: ExpectedOutput) -> Tuple[float, ...]:
    """Return how much each output that is a single number varies between inputs; infinity for all others.

    The value is the standard deviation over a few sets of inputs. It limits how far an answer may be off.
    """
    if not any(is_number(tensor) for tensor in expected.trusted):
        return ()

    def answer(index: int) -> Tuple[torch.Tensor, ...]:  # which frees the inputs before the next ones are drawn
        return reference.expect(reference.draw(InputMode.STANDARD, "another", index)).outputs

    answers = [expected.outputs, *map(answer, range(OTHER_INPUTS))]
    return tuple(
        float(torch.stack([answer[place].double().reshape(()) for answer in answers]).std())
        if is_number(tensor)
        else math.inf
        for place, tensor in enumerate(expected.trusted)
    )


def is_lost_in_rounding(expected: ExpectedOutput, tolerance: Tolerance) -> bool:
    """Return True if a plain sum can be off by half as much as a single number varies between inputs."""
    numbers = zip(expected.outputs, tolerance.variations)
    return any(
        tolerance.rounding * float(wanted.abs()) > variation
        for wanted, variation in numbers
        if 0 < variation < math.inf
    )


def check_worthless(expected: ExpectedOutput, tolerance: Tolerance) -> None:
    """Check that neither zeros nor a constant pass, and that single numbers depend on the inputs.

    Raises:
        SessionEnded: ``invalid_problem``.
    """
    if accepts([_filled(tensor, 0) for tensor in expected.trusted], expected, tolerance):
        raise _invalid("zeros would pass: the output says nothing about the computation")
    if any(tensor.numel() > 1 for tensor in expected.trusted):
        if accepts([_constant(tensor) for tensor in expected.trusted], expected, tolerance):
            raise _invalid("a constant would pass: the output says nothing about the computation")
    elif not any(tolerance.variations):
        raise _invalid("the answer to another input would pass: the output does not depend on it")


@_unless_memory_ends
def sensitivity(reference: ReferenceModel, inputs: List[Any], expected: ExpectedOutput) -> Optional[Tuple[float, ...]]:
    """Return, per floating input, the change of the answer when that input is drawn anew.

    The change is a root mean square as a share of the spread, of the output that changes most.
    """
    others = tensors_in(reference.draw(InputMode.STANDARD, "another", 0))
    ours = tensors_in(inputs)
    spreads = [spread_of(tensor) if tensor.is_floating_point() else 0.0 for tensor in expected.trusted]
    found = []
    for place, tensor in enumerate(ours):
        if tensor.is_floating_point() and others[place].shape == tensor.shape:
            answer = reference.answer(_with_one_other(inputs, place, others[place]))
            found.append(max(map(_change, expected.trusted, answer, spreads)))
    return tuple(found)


@_unless_memory_ends
def rejects_lower_precision(
    reference: ReferenceModel, inputs: List[Any], expected: ExpectedOutput, tolerance: Tolerance
) -> Optional[bool]:
    """Return True if the same computation one precision lower fails; None if there is none."""
    lower = reference.answer_one_precision_lower(inputs)
    if lower is None or not any(tensor.is_floating_point() for tensor in lower):
        return None
    return not accepts(lower, expected, tolerance)


@_unless_memory_ends
def rejects_lower_precision_exactly(reference: ReferenceModel) -> Optional[bool]:
    """Return True if the computation one precision lower misses an integer answer that the trusted one gets exactly."""
    inputs = reference.draw(InputMode.EXACT, "precision", whole=IntegerRange.WIDE)
    expected = reference.expect(inputs)
    lower = reference.answer_one_precision_lower(inputs) if is_whole(expected, reference.dtype, inputs) else None
    if lower is None:
        return False
    rows = zip(lower, expected.outputs, expected.trusted)
    return any(compare(got, want, same, AllowedError(0.0, 0.0), exact=True).mismatched for got, want, same in rows)


@_unless_memory_ends
def is_input_accepted(
    reference: ReferenceModel,
    inputs: List[Any],
    expected: ExpectedOutput,
    tolerance: Tolerance,
    modes: Iterable[InputMode],
) -> Optional[bool]:
    """Return True if an input that is returned as it is passes in all ``modes``: a ReLU of positive inputs.

    ``inputs`` and ``expected`` are of mode ``standard``; those of other modes are drawn here.
    """
    for mode in modes:
        if mode is not InputMode.STANDARD:
            inputs = reference.draw(mode, "identity")
            expected = reference.expect(inputs)
        same = (tensor for tensor in tensors_in(inputs) if _is_like(tensor, reference.like))
        if not any(accepts([tensor], expected, tolerance) for tensor in same):
            return False
    return True


def is_whole(expected: ExpectedOutput, dtype: Dtype, inputs: Sequence[Any] = ()) -> bool:
    """Return True if the answer is integers that the trusted implementation gets exactly, so that all others must.

    Where ``inputs`` are multiples of a smaller unit than one, the answer is of its first, second or third power.
    """
    unit = _unit_of(inputs)
    pairs = [pair for pair in zip(expected.outputs, expected.trusted) if pair[1].is_floating_point()]
    return bool(pairs) and all(_all_whole(wanted, same, unit, EXACT_BITS.get(dtype, 0)) for wanted, same in pairs)


def is_finite(expected: ExpectedOutput) -> bool:
    """Return True if the answer has neither NaN nor infinities, in either precision."""
    tensors = (*expected.outputs, *expected.trusted)
    return _holds(torch.isfinite(piece).all() for tensor in tensors for _, (piece,) in chunks(tensor))


def _is_like(tensor: torch.Tensor, outputs: Sequence[torch.Tensor]) -> bool:
    return [(tensor.shape, tensor.dtype)] == [(output.shape, output.dtype) for output in outputs]


def _unit_of(inputs: Sequence[Any]) -> float:
    """Return the least magnitude among floating inputs that are not zero, if it is a power of two below one; else 1."""
    tensors = (tensor for tensor in tensors_in(inputs) if tensor.is_floating_point() and tensor.numel())
    pieces = (piece for tensor in tensors for _, (piece,) in chunks(tensor))
    sizes = (
        (piece if piece.element_size() >= 4 else piece.float()).abs() for piece in pieces
    )  # narrow dtypes lack abs
    least = min((float(torch.where(size > 0, size, 1.0).min()) for size in sizes), default=1.0)
    return least if math.frexp(least)[0] == 0.5 else 1.0  # of all powers of two


def _all_whole(wanted: torch.Tensor, same: torch.Tensor, unit: float, bits: int) -> bool:
    if not _holds(((want == same) & torch.isfinite(want)).all() for _, (want, same) in chunks(wanted, same)):
        return False
    step = min((_step_of(want.double()) for _, (want,) in chunks(wanted)), default=math.inf)
    most = max((float(largest(want)) for _, (want,) in chunks(wanted)), default=0.0)
    # Not any fraction of the unit: a mean may be one, and running means round where plain ones do not.
    steps = [factor * unit**power for power in (1, 2, 3) for factor in (1, 2)]
    return step in steps and most <= step * 2.0**bits if unit < 1 else step >= 1 and most <= 2.0**bits


def _step_of(numbers: torch.Tensor) -> float:
    """Return the largest power of two that all numbers are multiples of; infinity for zeros."""
    mantissa, exponent = torch.frexp(numbers)
    digits = (mantissa * 2.0**53).long()
    steps = torch.ldexp((digits & -digits).double(), exponent - 53)
    return float(torch.where(numbers != 0, steps, math.inf).min())


def _holds(found: Iterable[torch.Tensor]) -> bool:
    """Return True if all flags are set; they are read once, since a GPU waits for the host each time."""
    flags = list(found)
    return not flags or bool(torch.stack(flags).all())


def is_number(tensor: torch.Tensor) -> bool:
    """Return True for a single real number."""
    return tensor.numel() == 1 and not tensor.is_complex()


def _with_one_other(inputs: List[Any], place: int, other: torch.Tensor) -> Any:
    places: Iterator[int] = itertools.count()
    return map_tensors(inputs, lambda tensor: other if next(places) == place else tensor)


def _change(before: torch.Tensor, after: torch.Tensor, spread: float) -> float:
    if before.shape != after.shape:
        return 1.0
    if not before.is_floating_point():
        return float((before != after).double().mean()) if before.numel() else 0.0
    norms = [
        torch.linalg.vector_norm(difference(new, old).nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0), dtype=torch.float64)
        for _, (old, new) in chunks(before, after)
    ]
    change = float(torch.stack(norms).norm()) / math.sqrt(before.numel()) if norms else 0.0
    return change / spread if spread else float(change > 0)


def _constant(like: torch.Tensor) -> torch.Tensor:
    """Return the output's mean everywhere, the best that a constant can do."""
    if not like.is_floating_point():
        return _filled(like, like[(0,) * like.dim()].item()) if like.numel() else like
    mean = _mean(like)
    if not math.isfinite(mean):
        finite = like[torch.isfinite(like)]
        mean = _mean(finite) if finite.numel() else 0.0
    return _filled(like, mean)


def _filled(like: torch.Tensor, value: float) -> torch.Tensor:
    """Return a tensor of the same shape with ``value`` everywhere, which takes no memory."""
    return like.new_full((), value).expand_as(like)


def _mean(tensor: torch.Tensor) -> float:
    """Return the mean of all numbers; in pieces, since torch would convert the whole tensor to float64."""
    sums = [piece.sum(dtype=torch.float64) for _, (piece,) in chunks(tensor)]
    return float(torch.stack(sums).sum()) / tensor.numel() if sums else math.nan


def _invalid(message: str) -> Exception:
    return finding(Status.INVALID_PROBLEM, Stage.VERIFY, message)
