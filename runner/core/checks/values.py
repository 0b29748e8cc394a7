"""Stage two: every element within its tolerance of the reference."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import List, Optional, Tuple

import torch

from runner.core.checks import Call, Failed
from runner.core.messages import Evidence
from runner.core.tolerance import CHUNK, Tolerance, chunks, floats, floor_of
from runner.core.vocab import Status


@dataclass(frozen=True)
class Comparison:
    """One output against the reference."""

    nonfinite: int
    """Elements that are NaN or infinite where the reference is finite."""
    mismatched: int
    elements: int
    """Numbers compared: a complex element is two."""
    worst_index: int
    """Flat index of the worst element."""
    worst_error: float
    worst_allowed: float
    worst_ratio: float


def check(call: Call) -> Optional[Failed]:
    """First output that is not finite, or not within tolerance."""
    for index, comparison in enumerate(call.comparisons):
        if comparison.mismatched:
            return _failed(call, index, comparison)
    return None


def measure(call: Call) -> Tuple[Optional[float], Optional[float]]:
    """Largest absolute error and largest share of the tolerance used, over all floating outputs."""
    errors = call.comparisons
    if not errors or any(e.nonfinite for e in errors):
        return None, None
    return max(e.worst_error for e in errors), max(e.worst_ratio for e in errors)


def compare(got: torch.Tensor, expected: torch.Tensor, trusted: torch.Tensor, tolerance: Tolerance) -> Comparison:
    """Compare one output element by element, ``CHUNK`` at a time."""
    if not (got.is_floating_point() or got.is_complex()):
        return _compare_exactly(got, expected, trusted)
    floor = floor_of(expected, trusted, tolerance)
    nonfinite = mismatched = 0
    worst = (-1.0, 0, 0.0, floor)
    for start, (have, wanted, same) in chunks(got, expected, trusted):
        broken, ratio, error, allowed = _judge_chunk(have, wanted, same, floor, tolerance.rtol)
        nonfinite += int(broken.sum())
        mismatched += int((ratio > 1).sum())
        place = int(ratio.argmax())
        if float(ratio[place]) > worst[0]:
            worst = (float(ratio[place]), start + place, float(error[place]), float(allowed[place]))
    numbers = floats(got).numel()
    place = worst[1] * got.numel() // max(numbers, 1)
    return Comparison(nonfinite, mismatched, numbers, place, worst[2], worst[3], max(worst[0], 0.0))


def _judge_chunk(
    have: torch.Tensor, wanted: torch.Tensor, same: torch.Tensor, floor: float, rtol: float
) -> Tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Per element: not finite though it should be; error ÷ allowed; error; allowed."""
    # Where the reference in this dtype overflows, nobody can be asked for more than the same overflow.
    overflow = torch.isfinite(wanted) & ~torch.isfinite(same)
    infinite = torch.isinf(wanted) & (wanted == same)
    free = overflow | torch.isnan(same) | torch.isnan(wanted)
    allowed = floor + rtol * wanted.abs()
    error = (have - wanted).abs()
    error = torch.where(infinite, torch.where(have == wanted, 0.0, torch.inf), error)
    allowed = torch.where(infinite, floor, allowed)
    error = torch.where(free, 0.0, error)
    broken = ~torch.isfinite(have) & ~free & ~infinite
    ratio = torch.where(error == 0, 0.0, error / allowed)
    ratio = torch.nan_to_num(ratio, nan=torch.inf, posinf=torch.inf)
    return broken, ratio, error, allowed


def _compare_exactly(got: torch.Tensor, expected: torch.Tensor, trusted: torch.Tensor) -> Comparison:
    """Integers and booleans: equal to the reference in either precision (ties may fall either way)."""
    flat, wanted, same = got.reshape(-1), expected.reshape(-1), trusted.reshape(-1)
    differs = (flat != wanted) & (flat != same)
    count = int(differs.sum())
    place = int(differs.to(torch.uint8).argmax()) if count else 0
    error = abs(float(flat[place]) - float(wanted[place])) if count else 0.0
    return Comparison(0, count, flat.numel(), place, error, 0.0, float("inf") if count else 0.0)


def _failed(call: Call, index: int, comparison: Comparison) -> Failed:
    got, expected = call.outputs[index], call.expected.outputs[index]
    place = _unravel(comparison.worst_index, tuple(got.shape))
    status = Status.NONFINITE if comparison.nonfinite else Status.INCORRECT_VALUES
    what = "not finite" if comparison.nonfinite else "beyond tolerance"
    count = comparison.nonfinite or comparison.mismatched
    message = f"output {index}: {count} of {comparison.elements} elements {what}"
    if _unwritten(got):
        message += "; some still hold the pattern the buffer was filled with: they were never written"
    evidence = Evidence(
        message=message,
        output=index,
        index=place,
        expected=_element(expected, comparison.worst_index),
        got=_element(got, comparison.worst_index),
        error=finite(comparison.worst_error),
        allowed=finite(comparison.worst_allowed),
        mismatched=comparison.mismatched,
        elements=comparison.elements,
    )
    return Failed(status, evidence)


def _unwritten(got: torch.Tensor) -> bool:
    """Whether an element still has all bits set, which is what output buffers are filled with."""
    if not (got.is_floating_point() or got.is_complex()) or got.numel() == 0:
        return False
    numbers = floats(got)[:CHUNK]
    raw = numbers.view(torch.uint8).reshape(-1, numbers.element_size())
    return bool((raw == 0xFF).all(dim=1).any())


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
    """``value``, or null where a record could not hold it."""
    return value if value is not None and math.isfinite(value) else None
