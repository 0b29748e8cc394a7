"""Properties that a problem's floating inputs have in every draw, so that a candidate may rely on them.

The maps in :mod:`kernel_matrix.inside.input_generation` are functions of the single element. Equal elements stay equal,
zeros stay zero, signs stay the same: patterns of zeros, triangles, symmetry and constant rows are kept without being
known. This module finds the properties that such a map would break. A property counts if several draws have it and it
is unlikely by chance. Where a tensor is too small to tell, it counts too: too few changes are better than wrong ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Callable, Iterable, List, NamedTuple, Optional, Sequence, Tuple

import torch

DRAWS = 3  # draws that properties are found in

SAMPLED = 1 << 16  # elements of a tensor that are looked at
LINES = 64  # lines of a tensor that are looked at, along each dimension
LONGEST = 1 << 22  # elements of all these lines together: few enough to hold in double precision on a full device
LONGEST_ORDER = 4096  # elements of a line whose order is looked at
ROUNDED = 1e-3  # asymmetry, and least eigenvalue, that rounding can cause, as a share of the largest element
LARGEST_MATRIX = 256  # leading part of a symmetric matrix that is factorised; it is definite if the whole is

FEW = 200  # fewer nonzero elements in all draws say nothing about the range: that of the draws must be kept
FEWEST_STEPS = 16  # rises (or falls) in all draws, with no step the other way, that count as an order
EQUAL_SUMS = 1e-2  # sums of lines count as equal within this share of the deviation that independent elements cause
NEAR_LARGEST = 0.95  # a normal distribution has nearly no elements beyond this share of the largest, a uniform 5 %,
MANY_NEAR = 0.02  # so a range with more of them than this has an end,
SAME_LARGEST = 1e-3  # and so has one whose largest elements differ by less than this share between draws
OFF_ZERO = 10  # a dense distribution's least element is below this many times its mean gap, but for one in 20,000


@dataclass(frozen=True)
class InputProperties:
    """Properties of one floating input in all draws. Magnitudes are of nonzero, finite elements."""

    whole: bool = False
    """All elements are integers: indices, one-hot rows, masks, permutations."""
    related: bool = False
    """Elements are sorted, have equal sums or norms along a dimension, or form definite matrices."""
    constant: bool = False
    """All draws are equal, while other inputs vary."""
    repeated: bool = False
    """Another input has the same elements."""
    antisymmetric: bool = False
    two_signs: bool = False
    least: float = 0.0
    """Lower bound of the magnitudes; 0 if there are elements near zero."""
    largest: float = math.inf
    """Upper bound of the magnitudes, as far as the range has an end; infinite otherwise."""

    @property
    def fixed(self) -> bool:
        """No map of single elements keeps these properties."""
        return self.whole or self.related or self.constant

    @property
    def takes_outliers(self) -> bool:
        """Elements can be far apart, by making some larger or, where the range has an end, the others smaller."""
        return not self.fixed and not (self.least and math.isfinite(self.largest))

    @property
    def takes_integers(self) -> bool:
        """Elements can be replaced by few numbers with a common power of two as their unit."""
        return not self.fixed and (not self.least or power_above(self.least) <= self.largest)


NO_PROPERTIES = InputProperties()


def power_above(number: float) -> float:
    """Return the least power of two that is not below ``number``."""
    mantissa, exponent = math.frexp(number)
    return math.ldexp(1.0, exponent - (mantissa == 0.5))


def power_below(number: float) -> float:
    """Return the greatest power of two that is not above ``number``."""
    return math.ldexp(1.0, math.frexp(number)[1] - 1)


class _Side(NamedTuple):
    """Elements of one sign."""

    numbers: int
    largest: float
    near: float
    """Number of further elements near the largest."""


_NO_SIDE = _Side(0, 0.0, 0.0)


class _Sums(NamedTuple):
    """Sums of the lines along one dimension."""

    least: float
    most: float
    deviation: float


class _Summary(NamedTuple):
    """One tensor of one draw."""

    digest: Tuple[float, ...]
    floating: bool = False
    whole: bool = False
    definite: bool = False
    """Symmetric matrices without negative eigenvalues, or whose symmetry is exact but for rounding."""
    antisymmetric: bool = False
    steps: Tuple[Tuple[int, int], ...] = ()
    """Rises and falls along each dimension."""
    sums: Tuple[_Sums, ...] = ()
    """Of the elements and of their squares, along each dimension."""
    least: float = math.inf
    sides: Tuple[_Side, _Side] = (_NO_SIDE, _NO_SIDE)


def find_properties(draws: Iterable[Callable[[], Sequence[torch.Tensor]]]) -> Tuple[Optional[InputProperties], ...]:
    """Return the properties that each tensor has in all draws; None if it is not floating.

    Only the tensors of one draw are held at a time.
    """
    summaries = [list(map(_summarize, draw())) for draw in draws]
    if len({len(tensors) for tensors in summaries}) != 1:  # their number is drawn too: nothing can be compared
        return (InputProperties(related=True),) * max(map(len, summaries), default=0)
    found = [list(same) for same in zip(*summaries)]
    digests = [tuple(summary.digest for summary in same) for same in found]
    constant = [len(set(same)) == 1 for same in digests]
    # A problem that seeds its own generator draws the same everywhere; other modes are all that varies then.
    seeded = all(constant)
    return tuple(
        replace(_conclude(same), constant=constant[place] and not seeded, repeated=digests.count(digests[place]) > 1)
        if same[0].floating
        else None
        for place, same in enumerate(found)
    )


def _conclude(summaries: List[_Summary]) -> InputProperties:
    positive, negative = (_end_of([summary.sides[sign] for summary in summaries]) for sign in (0, 1))
    count = sum(side.numbers for summary in summaries for side in summary.sides)
    top = max(side.largest for summary in summaries for side in summary.sides)
    least = min(summary.least for summary in summaries)
    few = count < FEW
    if few:
        positive = negative = top
    if least * (OFF_ZERO if few else count) < (1 if few else OFF_ZERO) * top:
        least = 0.0
    return InputProperties(
        whole=all(summary.whole for summary in summaries),
        related=_is_ordered(summaries) or _has_equal_sums(summaries) or all(summary.definite for summary in summaries),
        antisymmetric=all(summary.antisymmetric for summary in summaries),
        two_signs=all(any(summary.sides[sign].numbers for summary in summaries) for sign in (0, 1)),
        least=least if math.isfinite(least) else 0.0,
        largest=min(positive, negative),
    )


def _end_of(sides: List[_Side]) -> float:
    """Return the end of the range on one side of zero; infinity if it has none there."""
    count, largest = sum(side.numbers for side in sides), [side.largest for side in sides]
    many = sum(side.near for side in sides) > MANY_NEAR * count
    same = max(largest) - min(largest) <= SAME_LARGEST * max(largest)
    return max(largest) if count and (many or same) else math.inf


def _is_ordered(summaries: List[_Summary]) -> bool:
    if len({len(summary.steps) for summary in summaries}) != 1:
        return False
    for steps in zip(*(summary.steps for summary in summaries)):
        rises, falls = (sum(step[way] for step in steps) for way in (0, 1))
        if not min(rises, falls) and max(rises, falls) >= FEWEST_STEPS:
            return True
    return False


def _has_equal_sums(summaries: List[_Summary]) -> bool:
    if len({len(summary.sums) for summary in summaries}) != 1:
        return False
    for sums in zip(*(summary.sums for summary in summaries)):
        apart = max(one.most for one in sums) - min(one.least for one in sums)
        if apart <= EQUAL_SUMS * min(one.deviation for one in sums):
            return True
    return False


def _summarize(tensor: torch.Tensor) -> _Summary:
    numbers = _sample(tensor).double()
    finite = numbers[torch.isfinite(numbers)]
    digest = (float(finite.sum()), float(finite.square().sum()), float(numbers.numel()))
    if not tensor.is_floating_point():
        return _Summary(digest)
    nonzero = finite[finite != 0]
    lines = [lines_of(tensor, dim) for dim in range(tensor.dim()) if tensor.shape[dim] > 1 and tensor.numel()]
    matrices = _symmetric_part(tensor)
    return _Summary(
        digest=digest,
        floating=True,
        whole=bool((finite == finite.round()).all()),
        definite=matrices is not None and _is_definite(matrices),
        antisymmetric=matrices is not None and torch.equal(matrices, -matrices.mT),
        steps=tuple(map(_count_steps, lines)),
        sums=tuple(_sums_of(powers) for line in lines for powers in (line, line.square())),
        least=float(nonzero.abs().min()) if nonzero.numel() else math.inf,
        sides=(_side(nonzero[nonzero > 0]), _side(-nonzero[nonzero < 0])),
    )


def _sample(tensor: torch.Tensor) -> torch.Tensor:
    """Return up to :data:`SAMPLED` elements, at places that are the same in each draw."""
    if tensor.numel() <= SAMPLED:
        return tensor.reshape(-1)
    # At random: a regular step could miss the elements that are not zero.
    chance = torch.Generator().manual_seed(SAMPLED)
    places = (torch.randint(size, (SAMPLED,), generator=chance, device="cpu") for size in tensor.shape)
    return tensor[tuple(place.to(tensor.device) for place in places)]


def _side(magnitudes: torch.Tensor) -> _Side:
    if not magnitudes.numel():
        return _NO_SIDE
    largest = magnitudes.max()
    return _Side(magnitudes.numel(), float(largest), float((magnitudes >= NEAR_LARGEST * largest).sum()) - 1)


def lines_of(tensor: torch.Tensor, dim: int) -> torch.Tensor:
    """Return some lines along ``dim``, one per row, in double precision."""
    lines = tensor.movedim(dim, -1)[..., :LONGEST]
    across, length = lines.shape[:-1], lines.shape[-1]
    count = math.prod(across)
    chosen = torch.arange(0, count, -(-count // min(LINES, LONGEST // length)), device=tensor.device)
    # Not torch.unravel_index: at its first call torch imports sympy, which takes two seconds in every session.
    places = [chosen // math.prod(across[later:]) % size for later, size in enumerate(across, 1)]
    return lines[tuple(places)].double() if across else lines.double().reshape(1, -1)


def _count_steps(lines: torch.Tensor) -> Tuple[int, int]:
    steps = lines[:, :LONGEST_ORDER].diff(dim=1)
    return int((steps > 0).sum()), int((steps < 0).sum())


def _sums_of(lines: torch.Tensor) -> _Sums:
    sums, deviation = lines.sum(dim=1), lines.std(dim=1).mean() * math.sqrt(lines.shape[1])
    return _Sums(float(sums.min()), float(sums.max()), float(deviation))


def _symmetric_part(tensor: torch.Tensor) -> Optional[torch.Tensor]:
    """Return the leading part of some of the matrices in ``tensor``, if they are symmetric but for signs."""
    if tensor.dim() < 2 or tensor.shape[-1] != tensor.shape[-2] or tensor.shape[-1] < 2 or not tensor.numel():
        return None
    first = tensor[(slice(0, 2),) * (tensor.dim() - 2)]
    matrices = first[..., :LARGEST_MATRIX, :LARGEST_MATRIX].double()
    size = matrices.abs()
    return matrices if bool(((size - size.mT).abs() <= ROUNDED * size.amax()).all()) else None


def _is_definite(matrices: torch.Tensor) -> bool:
    """Return True for what a map of single elements breaks; it keeps exact symmetry, and diagonal matrices."""
    if torch.equal(matrices.abs(), matrices.abs().mT):
        if torch.equal(matrices, matrices.diagonal(dim1=-2, dim2=-1).diag_embed()):
            return False
        nudge = ROUNDED * matrices.abs().amax() * torch.eye(matrices.shape[-1], device=matrices.device)
        return bool((torch.linalg.cholesky_ex(matrices + nudge)[1] == 0).all())
    return True
