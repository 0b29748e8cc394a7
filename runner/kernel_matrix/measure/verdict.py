"""What sessions say about two implementations: faster, slower, equivalent, or nothing yet.

Two questions, each with its own error rate. *Do they differ?* needs an interval at :data:`DIFFERENCE_LEVEL` that
leaves out 1, and an effect larger than the margin, so that identical code is not called faster or slower by chance.
*Are they the same?* needs two one-sided tests at 5 % (Schuirmann, J. Pharmacokinet. Biopharm. 15, 1987): the 90 %
interval within the margin.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import median

from kernel_matrix.measure.intervals import Interval, deviation, log_interval
from kernel_matrix.measure.timed import CANDIDATE, EAGER, WorkloadTimes, grain_ns
from kernel_matrix.model.enums import Verdict

MARGIN = 0.01
"""Differences up to this share are the same for all practical purposes."""
DIFFERENCE_LEVEL = 0.99
EQUIVALENCE_LEVEL = 0.90
ONE_SESSION_FLOOR = 0.05
"""What one session has to show: identical code was seen to differ by 3.2 % from one process to the next."""
_BLOCK_DEVIATIONS = 3
"""And by so many standard deviations of the ratio of neighbouring blocks, for machines noisier than that."""


@dataclass(frozen=True, slots=True)
class SpeedupVerdict:
    """A verdict, and the 95 % interval of the speed-up (above 1: the candidate is faster) that a reader is shown."""

    verdict: Verdict
    estimate: float
    low: float
    """0 where there is one session: it has no interval."""
    high: float
    """Infinite there."""
    sessions: int


def compare(speedups: Sequence[float], *, margin: float = MARGIN, grain: float = 0.0) -> SpeedupVerdict:
    """Compare by one speed-up per session, two of them at least for any verdict.

    :param margin: share up to which a difference does not matter.
    :param grain: tick of the device's clock as a share of the time measured: what no number of sessions resolves.
    :raises ValueError: without speed-ups, or with one that is not positive.
    """
    shown = log_interval(speedups)
    if _differ(shown, log_interval(speedups, DIFFERENCE_LEVEL), max(margin, grain)):
        verdict = _direction(shown)
    elif grain <= margin and _within(log_interval(speedups, EQUIVALENCE_LEVEL), margin):
        verdict = Verdict.EQUIVALENT
    else:
        verdict = Verdict.INCONCLUSIVE
    return SpeedupVerdict(verdict, shown.estimate, shown.low, shown.high, len(speedups))


def compare_within(speedup: float, paired: Sequence[float], *, grain: float = 0.0) -> SpeedupVerdict:
    """Compare by the blocks of one session, which cannot know how much sessions differ.

    So it says ``faster`` or ``slower`` only of differences that no two sessions of identical code were ever seen to
    have, and never ``equivalent``.

    :param speedup: of the session as a whole.
    :param paired: speed-up of each pair of neighbouring blocks.
    :param grain: as for :func:`compare`.
    :raises ValueError: without speed-ups, or with one that is not positive.
    """
    blocks = log_interval(paired, DIFFERENCE_LEVEL)
    noise = deviation([math.log(one) for one in paired]) if len(paired) > 1 else math.inf
    floor = max(ONE_SESSION_FLOOR, grain, _BLOCK_DEVIATIONS * noise)
    verdict = _direction(blocks) if _differ(blocks, blocks, floor) else Verdict.INCONCLUSIVE
    return SpeedupVerdict(verdict, speedup, 0.0, math.inf, 1)


def compare_sessions(sessions: Sequence[WorkloadTimes], *, margin: float = MARGIN) -> SpeedupVerdict | None:
    """Compare the candidate with eager over all ``sessions`` of a workload; null where there is nothing to compare."""
    timed = [(times, speedup) for times in sessions if (speedup := times.speedup()) is not None]
    if not timed:
        return None
    grain = _relative_grain([times for times, _speedup in timed])
    if len(timed) == 1:
        ((times, speedup),) = timed
        return compare_within(speedup, times.paired_speedups() or [speedup], grain=grain)
    return compare([speedup for _times, speedup in timed], margin=margin, grain=grain)


def _differ(shown: Interval, strict: Interval, floor: float) -> bool:
    return strict.excludes_one and abs(math.log(shown.estimate)) > math.log1p(floor)


def _direction(interval: Interval) -> Verdict:
    return Verdict.FASTER if interval.estimate > 1 else Verdict.SLOWER


def _within(interval: Interval, margin: float) -> bool:
    reach = math.log1p(margin)
    return interval.low > 0 and -reach <= math.log(interval.low) and math.log(interval.high) <= reach


def _relative_grain(sessions: Sequence[WorkloadTimes]) -> float:
    """The clock's tick as a share of the shorter side's time."""
    found = []
    for name in (CANDIDATE, EAGER):
        samples = sorted(chain.from_iterable(times.device_ns(name) for times in sessions))
        found.append(grain_ns(samples) / median(samples))  # sorted already: sorting it again takes no time
    return max(found)
