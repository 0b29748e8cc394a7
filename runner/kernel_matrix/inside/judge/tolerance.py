"""Allowed difference between an output and the reference.

The rule for every element is ``|got - expected| <= rtol * |expected| + rtol * spread + t``. Here ``spread`` is the
standard deviation of the expected output, which replaces an absolute constant that a small output would vanish under.
``t`` comes from the error of a trusted implementation in the same dtype on the same inputs (long reductions, narrow
formats): 16 times its root mean square error, or twice its worst error if that is less, but at most 300 ``rtol *
spread`` and half the spread.

If twice the trusted implementation's error exceeds that at some elements (a rounding that fell the other way), about as
many elements of the candidate, one in a hundred at most, may be off by twice the trusted worst error, but never by more
than the spread. A candidate beyond that is compared once more with the trusted implementation's error on other inputs
of the same kind. If few elements have nearly all of the error, the trusted one may have been lucky on these inputs.

A single number has no spread: it must be closer to the reference than the answers to other inputs are to each other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Iterator, List, Mapping, Tuple

import torch

from kernel_matrix.model.enums import Dtype

# A few units in the last place for narrow dtypes, and the error of fast functions for single precision. Integers are
# compared exactly.
RTOL = {
    Dtype.FP64: 1e-11,
    Dtype.FP32: 1e-5,
    Dtype.TF32: 2e-3,
    Dtype.FP16: 2e-3,
    Dtype.BF16: 1.6e-2,
    Dtype.FP8_E4M3: 1.6e-2,
    Dtype.FP8_E5M2: 1.6e-2,
    Dtype.INT8: 1e-5,
    Dtype.INT32: 1e-5,
    Dtype.BOOL: 1e-5,
}

LONGEST = 1 << 20  # longer sums are made of partial sums in every implementation

TYPICAL = 16  # an honest error at any element, as a multiple of the trusted root mean square error
WORST = 2  # an honest worst error, as a multiple of the trusted worst error
CAP = 300  # most that the trusted error can add at every element, as a multiple of ``rtol * spread``
CAP_SHARE = 0.5  # the same as a share of the spread, if that is less
MOST_STRAYS = 0.01  # largest share of elements that may be further off, however many of the trusted ones are
FINEST = 1 / 16  # least share of ``rtol`` that a single number is allowed, however little it depends on the inputs

# Elements compared at once: with all temporaries they take 256 MiB at most, and they keep a GPU busy (measured on an
# H200: 2^24 elements were a third faster than 2^22).
CHUNK = 3 << 22


@dataclass(frozen=True)
class Tolerance:
    """Tolerance of a cell's outputs, fixed before any of them is known."""

    rtol: float
    atol: float = -1.0
    """Absolute tolerance instead of the one scaled to the spread; negative if not given."""
    variations: Tuple[float, ...] = ()
    """Per output, how much a single number varies between inputs; infinite, or left out, for all others."""
    rounding: float = 0.0
    """Largest relative error of a plain sum; part of ``rtol``, and the least for a single number."""

    @staticmethod
    def of(dtype: Dtype, overrides: Mapping[str, float], length: float = 1, partial_sums: float = 0.0) -> Tolerance:
        """Return the dtype's default for sums of ``length`` numbers, with a problem's overrides.

        The k-th of n additions rounds the partial sum S_k by an independent error of at most u |S_k|, where u is half
        of ``eps`` of the precision that sums are kept in (Higham 2002, section 4.2; Higham and Mary 2019 for the
        independence). Together they have the standard deviation u / sqrt(3) times the root of the sum of all S_k²: for
        numbers of one sign u sqrt(n) / 3 of the whole sum, and for independent numbers around zero u sqrt(n / 6) of its
        spread. ``eps * sqrt(n)`` is six of the former and five of the latter: more than the worst of a million sums.
        ``partial_sums`` is the root for the inputs themselves, as a share of the sum and its spread; five of its
        deviations are allowed if that is more.
        """
        if "rtol" in overrides:
            return Tolerance(rtol=overrides["rtol"], atol=overrides.get("atol", -1.0))
        kept = torch.finfo(torch.float64 if dtype is Dtype.FP64 else torch.float32)
        rounding = kept.eps * max(math.sqrt(min(length, LONGEST) - 1), 5 / math.sqrt(12) * partial_sums)
        return Tolerance(RTOL[dtype] + rounding, overrides.get("atol", -1.0), rounding=rounding)

    def to_json(self) -> Mapping[str, float]:
        """Return the tolerance as a record holds it."""
        return {"rtol": self.rtol} if self.atol < 0 else {"rtol": self.rtol, "atol": self.atol}


@dataclass(frozen=True)
class AllowedError:
    """Allowed error of one output on one set of inputs."""

    rtol: float
    """Share of the element's own expected value."""
    everywhere: float
    """Added at every element."""
    strays: int = 0
    """Number of elements that may use ``astray`` instead of ``everywhere``."""
    astray: float = 0.0
    spread: float = 0.0
    """Standard deviation of the expected output."""

    def eased(self, other: AllowedError) -> AllowedError:
        """Return a copy that also allows the error of ``other``, found on other inputs, relative to each spread."""
        share = min(1.0, self.spread / other.spread) if other.spread > 0 else 0.0
        return replace(
            self,
            everywhere=max(self.everywhere, share * other.everywhere),
            strays=max(self.strays, other.strays),
            astray=max(self.astray, share * other.astray),
        )

    def for_more(self, times: float) -> AllowedError:
        """Return the same for an output with ``times`` as many elements."""
        return replace(self, strays=int(self.strays * times))

    def at_most(self, share: float) -> AllowedError:
        """Return a copy that adds at most this share of the spread to an element's own tolerance."""
        most = share * self.spread
        return replace(self, everywhere=min(self.everywhere, most), astray=min(self.astray, most))


@dataclass(frozen=True)
class _Moments:
    """Count, mean and sum of squared deviations of expected values, and errors of the trusted implementation."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0
    error_squares: float = 0.0
    worst_error: float = 0.0

    @property
    def spread(self) -> float:
        """Standard deviation; for equal values, their absolute value."""
        return math.sqrt(self.squares / self.count) if self.squares > 0 else abs(self.mean)

    @property
    def typical_error(self) -> float:
        return math.sqrt(self.error_squares / self.count) if self.count else 0.0

    def joined(self, other: _Moments) -> _Moments:
        """Combine the moments of two sets (Chan, Golub and LeVeque 1979)."""
        count = self.count + other.count
        if not count:
            return self
        apart = other.mean - self.mean
        return _Moments(
            count=count,
            mean=self.mean + apart * other.count / count,
            squares=self.squares + other.squares + apart * apart * self.count * other.count / count,
            error_squares=self.error_squares + other.error_squares,
            worst_error=max(self.worst_error, other.worst_error),
        )


def floats(tensor: torch.Tensor) -> torch.Tensor:
    """Flatten ``tensor``, with complex numbers as pairs."""
    return _as_real(tensor).reshape(-1)


def chunks(*tensors: torch.Tensor, parts: int = 1) -> Iterator[Tuple[int, Tuple[torch.Tensor, ...]]]:
    """Yield (offset, pieces) of tensors of equal size, ``CHUNK ÷ parts`` numbers at a time.

    Complex numbers are pairs. Pieces of tensors that are not contiguous are copies.
    """
    real = [_as_real(t) for t in tensors]
    size, count = max(1, CHUNK // parts), real[0].numel()
    for start in range(0, count, size):
        yield start, tuple(_flat_slice(t, start, min(start + size, count)) for t in real)


def count_of(tensor: torch.Tensor) -> int:
    """Return how many numbers ``tensor`` has, with complex ones as pairs."""
    return int(tensor.numel()) * (2 if tensor.is_complex() else 1)


def _as_real(tensor: torch.Tensor) -> torch.Tensor:
    """Return complex numbers as pairs, in a last dimension more, and other tensors as they are."""
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def _flat_slice(tensor: torch.Tensor, start: int, stop: int) -> torch.Tensor:
    """Return the elements from ``start`` to ``stop`` in row-major order.

    If ``tensor`` is not contiguous, they are a copy, and no more is copied than the rows in which they lie.
    """
    if tensor.is_contiguous():
        return tensor.view(-1)[start:stop]
    row = tensor[0].numel()
    first, end = start // row, -(-stop // row)
    rows = tensor[first] if end - first == 1 else tensor[first:end].contiguous()
    return _flat_slice(rows, start - first * row, stop - first * row)


def difference(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Return ``one - other``, computed in the wider dtype, and stored in float32 unless ``one`` itself is wider."""
    kept = torch.float64 if one.dtype is torch.float64 else torch.float32
    # Stored in float32 because large outputs are limited by memory; 24 bits of an error suffice.
    return torch.sub(one, other, out=torch.empty(one.shape, dtype=kept, device=one.device))


def largest(numbers: torch.Tensor) -> torch.Tensor:
    """Return the largest absolute value, or NaN if there is a NaN."""
    return torch.linalg.vector_norm(numbers, math.inf)


def spread_of(tensor: torch.Tensor) -> float:
    """Return the standard deviation of all finite numbers of ``tensor``, or their absolute value if all are equal."""
    return _moments_of(tensor, tensor).spread


def allowance(
    expected: torch.Tensor, trusted: torch.Tensor, tolerance: Tolerance, variation: float = math.inf
) -> AllowedError:
    """Return the allowed error of an output, given the expected one and the trusted implementation's."""
    if not (trusted.is_floating_point() or trusted.is_complex()):
        return AllowedError(0.0, 0.0)
    moments = _moments_of(expected, trusted)
    if trusted.numel() == 1 and not trusted.is_complex() and tolerance.atol < 0:
        allowed = _of_one_number(moments, tolerance, torch.finfo(trusted.dtype).eps, variation)
        return AllowedError(0.0, allowed, spread=moments.spread)
    absolute = tolerance.atol if tolerance.atol >= 0 else tolerance.rtol * moments.spread
    cap = min(CAP * tolerance.rtol, CAP_SHARE) * moments.spread
    usual = absolute + min(TYPICAL * moments.typical_error, WORST * moments.worst_error, cap)
    if WORST * moments.worst_error <= usual:
        return AllowedError(tolerance.rtol, usual, spread=moments.spread)
    beyond = _beyond(expected, trusted, tolerance.rtol, usual)
    strays = min(2 * beyond + 2, int(moments.count * MOST_STRAYS) + 2) if beyond else 0
    astray = absolute + min(WORST * moments.worst_error, moments.spread)
    return AllowedError(tolerance.rtol, usual, strays, max(astray, usual), moments.spread)


def _of_one_number(moments: _Moments, tolerance: Tolerance, eps: float, variation: float) -> float:
    size = abs(moments.mean)
    # Three standard deviations of rounding are enough for one number.
    finest = max(FINEST * tolerance.rtol, eps, tolerance.rounding / 2) * size
    return min(2 * tolerance.rtol * size, max(variation / 4, finest)) + min(WORST * moments.worst_error, size)


def _moments_of(expected: torch.Tensor, trusted: torch.Tensor) -> _Moments:
    numbers_of = [_numbers(*piece) for _, piece in chunks(expected, trusted)]
    if not numbers_of:
        return _Moments()
    total = _Moments()
    # Read once at the end: waiting for each piece would take longer than the piece.
    for (_, (wanted, same)), numbers in zip(chunks(expected, trusted), torch.stack(numbers_of).tolist()):
        found = _moments(wanted.numel(), numbers)
        if not math.isfinite(found.squares + found.error_squares):
            finite = torch.isfinite(wanted) & torch.isfinite(same)
            wanted, same = wanted[finite], same[finite]  # noqa: PLW2901  # the finite part of the piece
            found = _moments(wanted.numel(), _numbers(wanted, same).tolist()) if wanted.numel() else _Moments()
        total = total.joined(found)
    return total


def _numbers(wanted: torch.Tensor, same: torch.Tensor) -> torch.Tensor:
    """Return variance and mean of ``wanted``, and norm and largest of the errors of ``same``."""
    variance, mean = torch.var_mean(wanted.double(), correction=0)
    error = difference(same, wanted)
    norm = torch.linalg.vector_norm(error, dtype=torch.float64)
    return torch.stack([variance, mean, norm, largest(error).double()])


def _moments(count: int, numbers: List[float]) -> _Moments:
    variance, mean, norm, worst = numbers
    return _Moments(count, mean, variance * count, norm**2, worst)


def _beyond(expected: torch.Tensor, trusted: torch.Tensor, rtol: float, usual: float) -> int:
    """Count the elements at which :data:`WORST` times the trusted implementation's error exceeds the tolerance."""
    counts = []
    for _, (wanted, same) in chunks(expected, trusted):
        error = difference(same, wanted).abs_()
        counts.append((torch.isfinite(error) & (WORST * error > wanted.abs() * rtol + usual)).sum())
    return int(torch.stack(counts).sum())
