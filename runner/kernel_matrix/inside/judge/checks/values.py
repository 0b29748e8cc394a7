"""Check of values: every element within its tolerance of the reference."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, List, Optional, Tuple

import torch

from kernel_matrix.inside.judge.bits import all_bits_set
from kernel_matrix.inside.judge.checks.failure import CheckFailure
from kernel_matrix.inside.judge.tolerance import CHUNK, AllowedError, chunks, count_of, difference, floats, largest
from kernel_matrix.model.enums import Status
from kernel_matrix.model.messages import Evidence

if TYPE_CHECKING:
    from kernel_matrix.inside.judge.checks import CheckedCall

FINE = 8  # a close look at an element takes about this many times the memory of a quick one

EXTREME = 0.99
"""Share of a dtype's largest number from which a value counts as a clamped overflow."""


@dataclass(frozen=True)
class ValueComparison:
    """Comparison of one output with the reference."""

    nonfinite: int
    """Elements that are NaN or infinite where the reference is finite."""
    mismatched: int
    elements: int
    """Count of numbers compared: a complex element is two."""
    worst_index: int
    """Flat index of the worst element; 0 if there is no error."""
    worst_error: float
    worst_allowed: float
    worst_ratio: float


def check(call: CheckedCall) -> Optional[CheckFailure]:
    """Return a failure for the first output that is not finite, or not within tolerance."""
    for index, comparison in enumerate(call.comparisons):
        # A contract is not about single elements; but they must be numbers, and integers must be right.
        excused = call.contract is not None and call.outputs[index].is_floating_point()
        if comparison.nonfinite or (comparison.mismatched and not excused):
            return _failed(call, index, comparison)
    return None


def measure(call: CheckedCall) -> Tuple[Optional[float], Optional[float]]:
    """Return the largest absolute error and the largest share of the tolerance, over all floating outputs."""
    errors = call.comparisons
    if not errors or any(e.nonfinite for e in errors):
        return None, None
    return max(e.worst_error for e in errors), max(e.worst_ratio for e in errors)


def compare(
    got: torch.Tensor, expected: torch.Tensor, trusted: torch.Tensor, allowance: AllowedError, *, exact: bool = False
) -> ValueComparison:
    """Compare one output element by element; ``exact`` requires equality."""
    if exact or not (got.is_floating_point() or got.is_complex()):
        return _compare_exactly(got, expected, trusted)
    quick = _compare_quickly(got, expected, allowance)
    return quick if quick is not None else _compare_closely(got, expected, trusted, allowance)


def passes(got: torch.Tensor, expected: torch.Tensor, trusted: torch.Tensor, allowance: AllowedError) -> bool:
    """Return whether ``got`` would pass; stop at the first chunk that does not."""
    if not (got.is_floating_point() or got.is_complex()):
        return not _compare_exactly(got, expected, trusted).mismatched
    strays = 0
    for _, (have, wanted, same) in chunks(got, expected, trusted, parts=FINE):
        if float(_look(have, wanted, allowance)[1]) <= 1:
            continue
        strays += _count_beyond(have, wanted, same, allowance.rtol, allowance.everywhere)
        if strays > allowance.strays or _count_beyond(have, wanted, same, allowance.rtol, allowance.astray):
            return False
    return True


def _compare_quickly(got: torch.Tensor, expected: torch.Tensor, allowance: AllowedError) -> Optional[ValueComparison]:
    """Return the comparison of an output that is within tolerance everywhere; ``None`` if it may not be."""
    looks = [_look(have, wanted, allowance) for _, (have, wanted) in chunks(got, expected)]
    worst: List[float] = torch.stack(looks).amax(dim=0).tolist() if looks else [0.0, 0.0]
    if not worst[1] <= 1:
        return None
    return ValueComparison(0, 0, count_of(got), 0, worst[0], allowance.everywhere, worst[1])


def _look(have: torch.Tensor, wanted: torch.Tensor, allowance: AllowedError) -> torch.Tensor:
    """Return the worst error and worst share of the tolerance in a chunk, in few passes; NaN for anything unusual."""
    error = difference(have, wanted)
    allowed = torch.mul(wanted, allowance.rtol, out=torch.empty_like(error)).abs_().add_(allowance.everywhere)
    worst_error = largest(error)
    return torch.stack([worst_error, largest(error.div_(allowed))])


def _compare_closely(
    got: torch.Tensor, expected: torch.Tensor, trusted: torch.Tensor, allowance: AllowedError
) -> ValueComparison:
    """Return the comparison of an output that may have non-finite elements or elements beyond tolerance."""
    rtol, floor = allowance.rtol, allowance.everywhere
    if allowance.strays:
        pieces = chunks(got, expected, trusted, parts=FINE)
        strays = sum(_count_beyond(have, wanted, same, rtol, floor) for _, (have, wanted, same) in pieces)
        floor = allowance.astray if strays <= allowance.strays else floor
    nonfinite = mismatched = 0
    worst = (-1.0, 0, 0.0, floor)
    for start, (have, wanted, same) in chunks(got, expected, trusted, parts=FINE):
        broken, ratio, error, allowed = _judge_chunk(have, wanted, same, rtol, floor)
        nonfinite += int(broken.sum())
        mismatched += int((ratio > 1).sum())
        place = int(ratio.argmax())
        if float(ratio[place]) > worst[0]:
            worst = (float(ratio[place]), start + place, float(error[place]), float(allowed[place]))
    numbers = count_of(got)
    place = worst[1] * got.numel() // max(numbers, 1)
    return ValueComparison(nonfinite, mismatched, numbers, place, worst[2], worst[3], max(worst[0], 0.0))


def _count_beyond(have: torch.Tensor, wanted: torch.Tensor, same: torch.Tensor, rtol: float, floor: float) -> int:
    return int((_judge_chunk(have, wanted, same, rtol, floor)[1] > 1).sum())


def _judge_chunk(
    have: torch.Tensor, wanted: torch.Tensor, same: torch.Tensor, rtol: float, floor: float
) -> Tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return per element: whether it is wrongly not finite, error ÷ allowed, error, allowed."""
    largest = torch.finfo(have.dtype).max
    have, wanted, same = have.double(), wanted.double(), same.double()
    lost = ~torch.isfinite(same) | torch.isnan(wanted)
    allowed = floor + rtol * torch.where(torch.isfinite(wanted), wanted, 0.0).abs()
    error = torch.where(have == wanted, 0.0, (have - wanted).abs())
    # Where the reference is not finite in this dtype, no number is required; but a different number is wrong.
    clamped = (have.abs() >= EXTREME * largest) & (have.sign() == wanted.sign())
    excused = lost & ~(torch.isinf(wanted) & torch.isinf(same)) & (~torch.isfinite(have) | clamped)
    error = torch.where(excused, 0.0, error)
    broken = ~torch.isfinite(have) & ~lost & torch.isfinite(wanted)
    ratio = torch.where(error == 0, 0.0, error / allowed)
    return broken, torch.nan_to_num(ratio, nan=torch.inf, posinf=torch.inf), error, allowed


def _compare_exactly(got: torch.Tensor, expected: torch.Tensor, trusted: torch.Tensor) -> ValueComparison:
    """Return the comparison for equality with the reference in either precision: ties may round either way."""
    pieces = (piece for _, piece in chunks(got, expected, trusted))
    differing = [((have != wanted) & (have != same)).any() for have, wanted, same in pieces]
    if not differing or not bool(torch.stack(differing).any()):
        return ValueComparison(0, 0, count_of(got), 0, 0.0, 0.0, 0.0)
    count = place = nonfinite = 0
    for start, (have, wanted, same) in chunks(got, expected, trusted):
        differs = (have != wanted) & (have != same)
        found = int(differs.sum())
        if found and not count:
            place = start + int(differs.to(torch.uint8).argmax())
        count += found
        nonfinite += int((~torch.isfinite(have)).sum())
    error = abs(float(floats(got)[place]) - float(floats(expected)[place]))
    return ValueComparison(nonfinite, count, count_of(got), place, error, 0.0, float("inf"))


def _failed(call: CheckedCall, index: int, comparison: ValueComparison) -> CheckFailure:
    got, expected = call.outputs[index], call.expected.outputs[index]
    place = _unravel(comparison.worst_index, tuple(got.shape))
    status = Status.NONFINITE if comparison.nonfinite else Status.INCORRECT_VALUES
    evidence = Evidence(
        message=_told(call, index, comparison),
        output=index,
        index=place,
        expected=_element(expected, comparison.worst_index),
        got=_element(got, comparison.worst_index),
        error=finite(comparison.worst_error),
        allowed=finite(comparison.worst_allowed),
        mismatched=comparison.mismatched,
        elements=comparison.elements,
    )
    return CheckFailure(status, evidence)


def _told(call: CheckedCall, index: int, comparison: ValueComparison) -> str:
    what = "not finite" if comparison.nonfinite else "beyond tolerance"
    if call.exact and not comparison.nonfinite:
        what = "not equal, on whole numbers whose answer is whole"
    count = comparison.nonfinite or comparison.mismatched
    message = f"output {index}: {count} of {comparison.elements} elements {what}"
    if _unwritten(call.outputs[index]):
        message += "; some still hold the pattern the buffer was filled with: they were never written"
    return message


def _unwritten(got: torch.Tensor) -> bool:
    """Return whether an element still has all bits set, the fill of output buffers."""
    if not (got.is_floating_point() or got.is_complex()):
        return False
    return bool(all_bits_set(got.reshape(-1)[:CHUNK]).any())


def _unravel(flat: int, shape: Tuple[int, ...]) -> Tuple[int, ...]:
    place: List[int] = []
    for size in reversed(shape):
        place.append(flat % size if size else 0)
        flat //= max(size, 1)
    return tuple(reversed(place))


def _element(tensor: torch.Tensor, flat: int) -> str:
    values = tensor.contiguous().reshape(-1)
    return "" if values.numel() == 0 else repr(values[min(flat, values.numel() - 1)].item())


def finite(value: Optional[float]) -> Optional[float]:
    """Return ``value``, or ``None`` if a record cannot hold it."""
    return value if value is not None and math.isfinite(value) else None
