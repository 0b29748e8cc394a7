"""Verdicts about two implementations: faster, slower, equivalent or inconclusive.

Two tests, each with its own error rate. ``faster`` and ``slower`` need an interval at :data:`DIFFERENCE_LEVEL` that
excludes 1 and an effect larger than the margin, so that identical code does not differ by chance. ``equivalent`` needs
two one-sided tests at 5 % (Schuirmann, J. Pharmacokinet. Biopharm. 15, 1987): the 90 % interval lies within the margin.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from statistics import median

from kernel_matrix.measure.intervals import Interval, deviation, log_interval
from kernel_matrix.measure.timed import CANDIDATE, EAGER, WorkloadTimes, grain_ns
from kernel_matrix.model.enums import Verdict

MARGIN = 0.01
"""Differences up to this share do not matter in practice."""
DIFFERENCE_LEVEL = 0.99
EQUIVALENCE_LEVEL = 0.90
ONE_SESSION_FLOOR = 0.05
"""Smallest difference that one session can show: identical code differed by up to 3.2 % between two processes."""
_BLOCK_DEVIATIONS = 3
"""On noisier machines one session must also show this many standard deviations of the ratio of neighbouring blocks."""


@dataclass(frozen=True, slots=True)
class SpeedupVerdict:
    """A verdict with the 95 % interval of the speed-up; above 1 the candidate is faster."""

    verdict: Verdict
    estimate: float
    low: float
    """0 for one session, which has no interval."""
    high: float
    """Infinite for one session."""
    sessions: int


def compare(speedups: Sequence[float], *, margin: float = MARGIN, grain: float = 0.0) -> SpeedupVerdict:
    """Compare by one speed-up per session; any verdict but ``inconclusive`` needs at least two.

    Args:
        speedups: One per session.
        margin: Share up to which a difference does not matter.
        grain: Tick of the device's clock as a share of the measured time; more sessions do not resolve less than this.

    Raises:
        ValueError: ``speedups`` is empty, or one is not positive.
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
    """Compare by the blocks of one session, which does not show how much sessions differ.

    The verdict is therefore never ``equivalent``, and ``faster`` or ``slower`` only for differences larger than any
    seen between two sessions of identical code.

    Args:
        speedup: Speed-up of the whole session.
        paired: Speed-up of each pair of neighbouring blocks.
        grain: As for :func:`compare`.

    Raises:
        ValueError: ``paired`` is empty, or one is not positive.
    """
    blocks = log_interval(paired, DIFFERENCE_LEVEL)
    noise = deviation([math.log(one) for one in paired]) if len(paired) > 1 else math.inf
    floor = max(ONE_SESSION_FLOOR, grain, _BLOCK_DEVIATIONS * noise)
    verdict = _direction(blocks) if _differ(blocks, blocks, floor) else Verdict.INCONCLUSIVE
    return SpeedupVerdict(verdict, speedup, 0.0, math.inf, 1)


def compare_sessions(sessions: Sequence[WorkloadTimes], *, margin: float = MARGIN) -> SpeedupVerdict | None:
    """Compare the candidate with eager over all ``sessions`` of a workload; None if no session timed both."""
    timed = [(times, speedup) for times in sessions if (speedup := times.speedup()) is not None]
    if not timed:
        return None
    grain = _relative_grain([times for times, _speedup in timed])
    if len(timed) == 1:
        ((times, speedup),) = timed
        found = compare_within(speedup, times.paired_speedups() or [speedup], grain=grain)
    else:
        found = compare([speedup for _times, speedup in timed], margin=margin, grain=grain)
    if found.verdict is Verdict.FASTER and not _is_faster_in_any_case([times for times, _speedup in timed]):
        return replace(found, verdict=Verdict.INCONCLUSIVE)
    return found


def _is_faster_in_any_case(sessions: Sequence[WorkloadTimes]) -> bool:
    """Return False if the candidate is not faster when its calls took as long as they can have taken at most."""
    bounded = [speedup for times in sessions if (speedup := times.bounded_speedup()) is not None]
    if not bounded:
        return True  # recorded without bounds
    if len(bounded) == 1:
        return bounded[0] > 1 + ONE_SESSION_FLOOR
    return log_interval(bounded, DIFFERENCE_LEVEL).low > 1


def _differ(shown: Interval, strict: Interval, floor: float) -> bool:
    return strict.excludes_one and abs(math.log(shown.estimate)) > math.log1p(floor)


def _direction(interval: Interval) -> Verdict:
    return Verdict.FASTER if interval.estimate > 1 else Verdict.SLOWER


def _within(interval: Interval, margin: float) -> bool:
    reach = math.log1p(margin)
    return interval.low > 0 and -reach <= math.log(interval.low) and math.log(interval.high) <= reach


def _relative_grain(sessions: Sequence[WorkloadTimes]) -> float:
    """Compute the device clock's tick as a share of the shorter contestant's time; 0 if all times are of batches."""
    claimed = [times for times in sessions if not times.in_batches()]
    shares = [0.0]
    for name in (CANDIDATE, EAGER) if claimed else ():
        samples = sorted(chain.from_iterable(times.device_ns(name) for times in claimed))  # sorted once for both
        shares.append(grain_ns(samples) / median(samples))
    return max(shares)
