"""The time of one call from batches, and the longest that it can have taken. No claim is in either.

A batch of ``n`` calls takes ``a + n t`` by the judge's clock: ``a`` is what starting and ending a batch costs, ``t`` is
the time of a call. Short batches of the baseline, which is not hostile, show ``a``; those of others would not, since a
contestant that is slow in short batches would look fast.

The clock of a batch starts when its inputs are delivered. In some sessions the calls run before the judge learns that
they may, and are over when the clock starts. The delivery then belongs to the batch: see :func:`calls_begin_early`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, chain
from statistics import median
from typing import Iterable, List, Sequence, Tuple

from kernel_matrix.model.messages import BatchBlock

FEWEST = 8
"""The median of fewer numbers has no interval."""
LATE_NS = 300_000
"""A delivery later than the baseline's by more than this counts as time of the calls. Deliveries to two processes with
the same code were seen to differ by up to 130 µs on an H100."""
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


def calls_begin_early(blocks: Sequence[BatchBlock], baseline: str) -> bool:
    """Return whether calls run while their inputs are delivered, so that the clock of a batch starts too late.

    Delivering takes equally long for a short batch and a long one, unless calls run meanwhile. Of 74 cells with three
    sessions each on an H100 and an H200, the baseline's long batches took 2.5 to 4 ms longer in all sessions of four
    cells, and at most 0.11 ms longer in all others.
    """
    short, long = (
        [block for block in blocks if block.contestant == baseline and block.short is it] for it in (True, False)
    )
    if not short or not long:
        return False
    few, many = (median(chain.from_iterable(block.delivered_ns for block in side)) for side in (short, long))
    return many - few > LATE_NS


def start_ns(blocks: Sequence[BatchBlock], baseline: str) -> float:
    """Return what a batch takes besides its calls, nanoseconds: the median over pairs of the baseline's batches.

    A pair is a short batch and a long one. Without pairs it is 0, which makes calls look slower. If
    :func:`calls_begin_early`, it contains the delivery.
    """
    early = calls_begin_early(blocks, baseline)
    chosen = [block for block in blocks if block.contestant == baseline]
    short, long = (_spans([block for block in chosen if block.short is it], early=early) for it in (True, False))
    starts = [
        began - few * (ended - began) / (many - few) for (few, began), (many, ended) in zip(short, long) if many != few
    ]
    return max(0.0, median(starts)) if starts else 0.0


def call_times(blocks: Sequence[BatchBlock], contestant: str, baseline: str) -> List[float]:
    """Return a contestant's time per call in each of its long batches, nanoseconds.

    Work that was done before the clock of a batch started, or left for the hand-over, counts as time of the calls where
    it can be told from noise: a delivery that takes more than :data:`LATE_NS` longer than the baseline's usually does,
    and hand-overs of which the median exceeds all of the baseline's. A delivery also looks long, and the batch short,
    where the judge itself was delayed. If :func:`calls_begin_early`, all of every delivery counts, for both sides.
    """
    ours, theirs = (_long(blocks, name) for name in (contestant, baseline))
    if not theirs:  # nothing to compare with
        return [ns for block in ours for ns in _per_call(block, block.wall_ns)]
    start, early = start_ns(blocks, baseline), calls_begin_early(blocks, baseline)
    usual = math.inf if early else _interval(block.delivered_ns for block in theirs).estimate
    in_place = {block.in_place for block in (*ours, *theirs)}
    put_off = 0.0
    if in_place == {True}:
        put_off = _excess_ns([block.handover_ns for block in ours], [block.handover_ns for block in theirs])
    times = [
        (span_ns - start + put_off + _late_ns(delivered_ns - usual)) / calls
        for block in ours
        for (calls, span_ns), delivered_ns in zip(_spans([block], early=early), block.delivered_ns)
    ]
    if in_place != {False}:
        return times
    our_copies, their_copies = ([_copies(block) for block in side] for side in (ours, theirs))
    excess, copied = _excess_ns(our_copies, their_copies), _interval(their_copies).estimate
    return [with_hidden_ns(ns, copied, excess) for ns in times] if excess else times


def longest_ns(blocks: Sequence[BatchBlock], contestant: str, baseline: str) -> float:
    """Return the longest that a contestant's calls can have taken, nanoseconds; infinite if they are too few.

    Counted as time of its calls are: all of the batch, also what starting it costs; by how much delivering its inputs
    takes longer than it must, since it may begin to work meanwhile; and what may hide in the hand-over. The
    least that a delivery takes is known from the baseline, which is not hostile: the judge writes the inputs, and the
    device switches to the worker. Work of the contestant on the device would delay both.

    The parts of a batch are added up before the interval is taken: where the judge itself is delayed, one part is
    shorter by what another one is longer.

    Outputs in place are taken when the calls end, which may show work that was put off: all that it takes longer than
    the baseline's. Where only one side's are in place, all of a contestant's hand-over may be such work.
    """
    ours, theirs = (_long(blocks, name) for name in (contestant, baseline))
    if min(sum(len(block.calls) for block in side) for side in (ours, theirs)) < FEWEST:
        return math.inf
    in_place = {block.in_place for block in (*ours, *theirs)}
    least = _interval(block.least_ns for block in theirs).low
    if in_place == {False}:
        shown = _interval(_per_call(block, block.delivered_ns, block.wall_ns, less=least) for block in ours)
        handover, usual = (_interval(map(_copies, side)) for side in (ours, theirs))
        return with_hidden_ns(shown.high, usual.high, max(0.0, handover.high - usual.low))
    if in_place == {True}:
        least += _interval(block.handover_ns for block in theirs).low
    parts = ((block, block.delivered_ns, block.wall_ns, block.handover_ns) for block in ours)
    return _interval(_per_call(*part, less=least) for part in parts).high


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


def _long(blocks: Sequence[BatchBlock], contestant: str) -> List[BatchBlock]:
    return [block for block in blocks if block.contestant == contestant and not block.short]


def _spans(blocks: Sequence[BatchBlock], *, early: bool) -> List[Tuple[int, int]]:
    """Return (calls, time of them all) of each batch; with the delivery if calls begin ``early``."""
    return [
        (calls, wall_ns + (delivered_ns if early else 0))
        for block in blocks
        for calls, delivered_ns, wall_ns in zip(block.calls, block.delivered_ns, block.wall_ns)
    ]


def _per_call(block: BatchBlock, *parts: Sequence[int], less: float = 0.0) -> List[float]:
    """Return the sum of the parts of each batch, less a constant, per call, nanoseconds."""
    return [(sum(times) - less) / calls for calls, *times in zip(block.calls, *parts)]


def _copies(block: BatchBlock) -> List[float]:
    """Return the time per call of handing over the outputs of each batch, nanoseconds."""
    return _per_call(block, block.handover_ns)


def _late_ns(excess: float) -> float:
    """Return by how much a delivery was late; 0 if that may be noise."""
    return excess if excess > LATE_NS else 0.0


def _excess_ns(ours: Sequence[Sequence[float]], theirs: Sequence[Sequence[float]]) -> float:
    """Return by how much the median of our times exceeds that of theirs; 0 unless it exceeds all of theirs.

    Times of identical code differ by their noise, which must not count.
    """
    our_times, their_times = list(chain(*ours)), list(chain(*theirs))
    if not our_times or not their_times or median(our_times) <= max(their_times):
        return 0.0
    return median(our_times) - median(their_times)


def _interval(times: Iterable[Sequence[float]]) -> MedianInterval:
    """Return the median interval over the times of all blocks, given per block."""
    return median_interval(list(chain(*times)))
