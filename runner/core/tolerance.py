"""How far an output may be from the reference.

``|got - expected| <= rtol * |expected| + rtol * rms(expected) + 2 * max|trusted - expected|``

The second term scales with the output's own spread, so that a small output is not lost under an absolute constant; the
third is what a trusted implementation in the same dtype errs by at worst on the very same inputs (long reductions, TF32
convolutions). ``rtol`` is a few units in the last place of the dtype.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterator, Mapping, Tuple

import torch

from runner.core.vocab import Dtype

RTOL = {Dtype.FP64: 1e-9, Dtype.FP32: 1e-4, Dtype.FP16: 2e-3, Dtype.BF16: 1.6e-2}

CHUNK = 1 << 26
"""Elements compared at once: bounds the memory of a comparison."""


@dataclass(frozen=True)
class Tolerance:
    """Relative and absolute tolerance; ``atol`` null means: scaled to the output's spread, as above."""

    rtol: float
    atol: float = -1.0
    """Absolute tolerance in place of the scaled one; negative: not given."""

    @staticmethod
    def of(dtype: Dtype, overrides: Mapping[str, float]) -> Tolerance:
        """The dtype's default with a problem's overrides."""
        return Tolerance(rtol=overrides.get("rtol", RTOL[dtype]), atol=overrides.get("atol", -1.0))

    def to_json(self) -> Mapping[str, float]:
        """For the record."""
        return {"rtol": self.rtol} if self.atol < 0 else {"rtol": self.rtol, "atol": self.atol}


def floats(tensor: torch.Tensor) -> torch.Tensor:
    """``tensor`` flat; complex numbers as pairs."""
    flat = tensor.contiguous().reshape(-1)
    return torch.view_as_real(flat).reshape(-1) if flat.is_complex() else flat


def chunks(*tensors: torch.Tensor) -> Iterator[Tuple[int, Tuple[torch.Tensor, ...]]]:
    """(offset, float64 pieces) of tensors of equal size, ``CHUNK`` elements at a time."""
    flat = [floats(t) for t in tensors]
    for start in range(0, flat[0].numel(), CHUNK):
        yield start, tuple(f[start : start + CHUNK].double() for f in flat)


def floor_of(expected: torch.Tensor, trusted: torch.Tensor, tolerance: Tolerance) -> float:
    """The part of the tolerance that is the same for all elements of one output."""
    squares, count, worst = 0.0, 0, 0.0
    for _, (wanted, same) in chunks(expected, trusted):
        finite = torch.isfinite(wanted) & torch.isfinite(same)
        error = torch.where(finite, (same - wanted).abs(), 0.0)
        squares += float(torch.where(finite, wanted, 0.0).square().sum())
        count += int(finite.sum())
        worst = max(worst, float(error.max()))
    rms = (squares / count) ** 0.5 if count else 0.0
    absolute = tolerance.atol if tolerance.atol >= 0 else tolerance.rtol * rms
    return absolute + 2 * worst
