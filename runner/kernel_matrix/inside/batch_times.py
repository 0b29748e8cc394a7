"""The time of one call from batches, and the longest that it can have taken. No claim is in either.

A batch of ``n`` calls takes ``a + n t`` by the judge's clock: ``a`` is what starting and ending a batch costs, ``t`` is
the time of a call. Short batches of the baseline, which is not hostile, show ``a``; those of others would not, since a
contestant that is slow in short batches would look fast.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from statistics import median
from typing import List, Sequence, Tuple

from kernel_matrix.model.messages import BatchBlock

FEWEST = 8
"""The median of fewer numbers has no interval."""
EXACT_COUNT = 200
"""Ranks of more numbers follow from the normal approximation, rounded outwards."""


@dataclass(frozen=True)
class MedianInterval:
    """A median and its distribution-free 95 % interval."""

    estimate: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        """Half the interval's width as a share of the median."""
        return (self.high - self.low) / 2 / self.estimate if self.estimate > 0 else math.inf


def median_interval(numbers: Sequence[float]) -> MedianInterval:
    """Return the median of ``numbers``, and two order statistics between which it lies with at least 95 %.

    The interval is distribution-free, by the binomial distribution (W. J. Conover, Practical Nonparametric Statistics,
    section 3.2). With fewer than :data:`FEWEST` numbers it has no end.
    """
    ordered, middle = sorted(numbers), median(numbers)
    if len(ordered) < FEWEST:
        return MedianInterval(middle, -math.inf, math.inf)
    beyond = _numbers_beyond(len(ordered))
    return MedianInterval(middle, ordered[beyond], ordered[len(ordered) - 1 - beyond])


@lru_cache(maxsize=None)
def _numbers_beyond(count: int) -> int:
    """Return how many of ``count`` numbers lie beyond each end of a 95 % interval of their median.

    With ``k`` numbers beyond, the median lies below the interval with the probability that ``count`` throws of a coin
    show ``k`` heads or fewer, which must be 2.5 % at most.
    """
    if count > EXACT_COUNT:
        return max(0, math.floor(count / 2 - 0.98 * math.sqrt(count)) - 1)
    at_most = accumulate(math.comb(count, heads) for heads in range(count // 2))
    return max(0, sum(ways <= 0.025 * (1 << count) for ways in at_most) - 1)


def start_ns(blocks: Sequence[BatchBlock], baseline: str) -> float:
    """Return what a batch takes besides its calls, nanoseconds: the median over pairs of the baseline's batches.

    A pair is a short batch and a long one. Without pairs it is 0, which makes calls look slower.
    """
    short, long = (_walls(blocks, baseline, short=short) for short in (True, False))
    starts = [
        began - few * (ended - began) / (many - few) for (few, began), (many, ended) in zip(short, long) if many != few
    ]
    return max(0.0, median(starts)) if starts else 0.0


def call_times(blocks: Sequence[BatchBlock], contestant: str, baseline: str) -> List[float]:
    """Return a contestant's time per call in each of its long batches, nanoseconds."""
    start = start_ns(blocks, baseline)
    return [(wall_ns - start) / calls for calls, wall_ns in _walls(blocks, contestant, short=False)]


def longest_ns(blocks: Sequence[BatchBlock], contestant: str, baseline: str) -> float:
    """Return the longest that a contestant's calls can have taken, nanoseconds; infinite if they are too few.

    Counted as time of its calls are: all of the batch, also what starting it costs; by how much delivering its inputs
    takes longer than it must, since it may begin to work meanwhile; and what may hide in the hand-over. The
    least that a delivery takes is known from the baseline, which is not hostile: the judge writes the inputs, and the
    device switches to the worker. Work of the contestant on the device would delay both.
    """
    ours, theirs = ([b for b in blocks if b.contestant == name and not b.short] for name in (contestant, baseline))
    if not ours or not theirs:
        return math.inf
    calls = median(count for block in ours for count in block.calls)
    whole = median_interval([wall / n for block in ours for n, wall in zip(block.calls, block.wall_ns)])
    delivered = median_interval([ns for block in ours for ns in block.delivered_ns])
    least = median_interval([ns for block in theirs for ns in block.least_ns])
    begun = max(0.0, delivered.high - max(0.0, least.low)) / calls
    return _with_handover_ns(whole.high + begun, ours, theirs)


def _with_handover_ns(before_ns: float, ours: Sequence[BatchBlock], theirs: Sequence[BatchBlock]) -> float:
    """Return ``before_ns``, the time of a call before the hand-over, and what it can hide in the hand-over.

    Outputs in place are taken when the calls end, which may show work that was put off: all that it takes longer than
    the baseline's. Where only one side's are in place, all of a contestant's hand-over may be such work.
    """
    in_place = {block.in_place for block in (*ours, *theirs)}
    if in_place == {False}:
        handover, usual = (
            median_interval([ns / n for block in side for n, ns in zip(block.calls, block.handover_ns)])
            for side in (ours, theirs)
        )
        return with_hidden_ns(before_ns, usual.high, max(0.0, handover.high - usual.low))
    usual_ns = median_interval([ns for block in theirs for ns in block.handover_ns]).low if in_place == {True} else 0
    late = median_interval([(ns - usual_ns) / n for block in ours for n, ns in zip(block.calls, block.handover_ns)])
    return before_ns + max(0.0, late.high)


def with_hidden_ns(shown: float, copied: float, excess: float) -> float:
    """Return the longest time of a call, nanoseconds, of which a part may hide in the hand-over.

    A contestant can leave a share ``f`` of the calls' work for the hand-over, and save there the copies of these calls'
    outputs. Of calls of ``t`` ns it shows ``s = (1 - f) t`` until the end of the batch, and in the hand-over
    ``c + f (t - c)``, which exceeds the usual ``c`` by ``e``. Hence ``h = f t``, what it hides, solves
    ``h² + h (s - c - e) - e s = 0``.

    Args:
        shown: Time per call until the batch has ended, ``s``.
        copied: The baseline's time per call of handing outputs over, ``c``.
        excess: By how much the contestant's may exceed it, ``e``.
    """
    if math.isinf(shown) or math.isinf(excess) or math.isinf(copied):
        return math.inf
    linear = shown - copied - excess
    return shown + (math.sqrt(linear * linear + 4 * excess * shown) - linear) / 2


def _walls(blocks: Sequence[BatchBlock], contestant: str, *, short: bool) -> List[Tuple[int, int]]:
    """Return (calls, wall time) of each short or long batch of a contestant."""
    chosen = [block for block in blocks if block.contestant == contestant and block.short is short]
    return [pair for block in chosen for pair in zip(block.calls, block.wall_ns)]
