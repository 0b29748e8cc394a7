"""The time of one call from pairs of batches, and the longest that it can have taken. No claim is in either.

A batch of ``n`` calls takes ``a + n t`` by the judge's clock: ``a`` is what starting and ending a batch costs, ``t`` is
the time of a call. Of a short and a long batch, made one after the other, the difference of their times divided by the
difference of their calls is ``t``. Handing the outputs of ``n`` calls over takes ``b + n c`` likewise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import median
from typing import List, Sequence

FEWEST_PAIRS = 8
"""Fewer pairs have no interval."""


@dataclass(frozen=True)
class Slope:
    """Time per call, nanoseconds: the median over pairs, and its distribution-free 95 % interval."""

    estimate: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        """Half the interval's width as a share of the estimate."""
        return (self.high - self.low) / 2 / self.estimate if self.estimate > 0 else math.inf


def pair_slopes(calls: Sequence[int], times_ns: Sequence[int]) -> List[float]:
    """Return the time per call of each pair of batches, nanoseconds.

    Args:
        calls: Number of calls of each batch; two batches in a row are a pair, of different numbers.
        times_ns: Time of each batch.
    """
    pairs = zip(calls[::2], calls[1::2], times_ns[::2], times_ns[1::2])
    return [(ended - began) / (many - few) for few, many, began, ended in pairs]


def slope_of(slopes: Sequence[float]) -> Slope:
    """Return the median of ``slopes`` with its interval between the order statistics around ``n/2 ± 0.98 √n``.

    With fewer than :data:`FEWEST_PAIRS` the interval has no end.
    """
    ordered, middle = sorted(slopes), median(slopes)
    if len(ordered) < FEWEST_PAIRS:
        return Slope(middle, 0.0, math.inf)
    low = max(0, math.floor(len(ordered) / 2 - 0.98 * math.sqrt(len(ordered))) - 1)
    return Slope(middle, ordered[low], ordered[len(ordered) - 1 - low])


def longest_ns(call: Slope, handover: Slope, usual: Slope, prefetched: float = 0.0) -> float:
    """Return the longest that a call can have taken, nanoseconds.

    A contestant can leave a share ``f`` of the calls' work for the hand-over, and save there the copies of these calls'
    outputs. Of calls of ``t`` ns it shows ``s = (1 - f) t`` until the end of the batch, and in the hand-over
    ``c + f (t - c)``, which exceeds the usual ``c`` by ``e``. Hence ``h = f t``, what it hides, solves
    ``h² + h (s - c - e) - e s = 0``. Everything unknown is taken at its worst.

    Args:
        call: The contestant's time per call until the batch has ended.
        handover: Its time per call of handing outputs over.
        usual: The baseline's time per call of handing outputs over.
        prefetched: What it can have worked out before its clock ran, as in :func:`prefetched_ns`.
    """
    shown, copied = max(0.0, call.high) + prefetched, max(0.0, usual.high)
    excess = max(0.0, handover.high - usual.low)
    if math.isinf(shown) or math.isinf(excess):
        return math.inf
    linear = shown - copied - excess
    return shown + (math.sqrt(linear * linear + 4 * excess * shown) - linear) / 2


def prefetched_ns(calls: Sequence[int], call: Slope, shown: Slope, usual: Slope) -> float:
    """Return by how much work before the clock runs can have shortened the time per call, nanoseconds.

    A contestant that takes its time to see the memory of a batch may begin to work there. It does not know yet how many
    calls it will have to make, so the time that it gains is the same for both batches of a pair and cancels, as far as
    it is no longer than the calls of the short one.

    Args:
        calls: Number of calls of each batch, in pairs.
        call: Its time per call.
        shown: The time in which it saw the memory of a batch: median and interval.
        usual: The same of the baseline.
    """
    few, more = median(calls[::2]), median(many - few for few, many in zip(calls[::2], calls[1::2]))
    excess = shown.high - usual.low - few * max(0.0, call.estimate)
    return max(0.0, excess) / more
