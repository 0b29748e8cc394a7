"""Verdicts about two implementations: faster, slower, equivalent or inconclusive, each with its reason.

Each verdict is a test of what it says. ``faster`` and ``slower`` need an interval at :data:`DIFFERENCE_LEVEL` that
excludes 1, and a one-sided test at 5 % that the difference exceeds the margin. ``equivalent`` needs two one-sided tests
at 5 % that it does not (Schuirmann, J. Pharmacokinet. Biopharm. 15, 1987). Both read the same 90 % interval: it lies
beyond the margin, or within. There is no verdict on calls whose times the audit would object to.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from statistics import fmean, median

from kernel_matrix.measure.intervals import LEVEL, Interval, deviation, log_interval, t_chance, t_quantile
from kernel_matrix.measure.objections import object_to_calls
from kernel_matrix.measure.timed import CANDIDATE, EAGER, WorkloadTimes, grain_ns
from kernel_matrix.model.enums import Verdict, VerdictReason

MARGIN = 0.01
"""Differences up to this share do not matter in practice."""
DIFFERENCE_LEVEL = 0.99
MARGIN_LEVEL = 0.90
"""Level of the interval that lies beyond the margin, or within it: 5 % on each side."""
ONE_SESSION_FLOOR = 0.05
"""Smallest difference that one session can show: identical code differed by up to 3.2 % between two processes."""
_BLOCK_DEVIATIONS = 3
"""On noisier machines one session must also show this many standard deviations of the ratio of neighbouring blocks."""
_FLOOR_DEGREES = 4.0
"""Degrees of freedom of Student's t for a difference in one session whose chance is 1 % at the floor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedupVerdict:
    """A verdict with its reason, and the 95 % interval of the speed-up; above 1 the candidate is faster."""

    verdict: Verdict
    reason: VerdictReason
    figure: float
    """The number that decided; :class:`~kernel_matrix.model.enums.VerdictReason` says which."""
    chance: float
    """Probability of a difference this large between equal implementations."""
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
    shown, strict, tested = (log_interval(speedups, level) for level in (LEVEL, DIFFERENCE_LEVEL, MARGIN_LEVEL))
    nearest, farthest = _nearest(tested), max(tested.low, tested.high, key=_distance)
    if strict.excludes_one and _distance(nearest) > math.log1p(max(margin, grain)):
        verdict, reason, figure = _direction(shown), VerdictReason.BEYOND_MARGIN, nearest
    elif grain <= margin and _distance(farthest) <= math.log1p(margin):
        verdict, reason, figure = Verdict.EQUIVALENT, VerdictReason.WITHIN_MARGIN, farthest
    else:
        verdict = Verdict.INCONCLUSIVE
        reason, figure = _undecided(speedups, strict, nearest, grain if grain > margin else 0.0)
    return SpeedupVerdict(
        verdict=verdict,
        reason=reason,
        figure=figure,
        chance=_chance(speedups),
        estimate=shown.estimate,
        low=shown.low,
        high=shown.high,
        sessions=len(speedups),
    )


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
    size = _distance(blocks.estimate)
    noise = _BLOCK_DEVIATIONS * deviation([math.log(one) for one in paired]) if len(paired) > 1 else 0.0
    floor = max(ONE_SESSION_FLOOR, grain, noise)
    verdict = Verdict.INCONCLUSIVE
    if blocks.excludes_one and size > math.log1p(floor):
        verdict, reason, figure = _direction(blocks), VerdictReason.BEYOND_FLOOR, floor
    elif max(size, _distance(speedup)) <= math.log1p(ONE_SESSION_FLOOR):
        reason, figure = VerdictReason.ONE_SESSION, ONE_SESSION_FLOOR
    elif len(paired) == 1:
        reason, figure = VerdictReason.ONE_BLOCK, 1.0
    elif grain > noise:
        reason, figure = VerdictReason.COARSE_CLOCK, grain
    else:
        reason, figure = VerdictReason.BLOCKS_DISAGREE, noise
    # Between sessions, a difference of the size of the floor has a chance of 1 %.
    at_floor = float(t_quantile(_FLOOR_DEGREES, DIFFERENCE_LEVEL))
    between = t_chance(at_floor * size / math.log1p(floor), _FLOOR_DEGREES)
    return SpeedupVerdict(
        verdict=verdict,
        reason=reason,
        figure=figure,
        chance=max(_chance(paired), between),
        estimate=speedup,
        low=0.0,
        high=math.inf,
        sessions=1,
    )


def compare_sessions(sessions: Sequence[WorkloadTimes], *, margin: float = MARGIN) -> SpeedupVerdict | None:
    """Compare the candidate with eager over all ``sessions`` of a workload; None if no session timed both."""
    speedups = [(times, speedup) for times in sessions if (speedup := times.speedup()) is not None]
    if not speedups:
        return None
    timed = [times for times, _speedup in speedups]
    grain = _relative_grain(timed)
    if len(timed) == 1:
        ((times, speedup),) = speedups
        found = compare_within(speedup, times.paired_speedups() or [speedup], grain=grain)
    else:
        found = compare([speedup for _times, speedup in speedups], margin=margin, grain=grain)
    objection = object_to_calls(timed)
    if objection is None and found.verdict is Verdict.FASTER:
        objection = object_to_bounds([one for times in timed if (one := times.bounded_speedup()) is not None])
    if objection is None:
        return found
    reason, figure = objection
    return replace(found, verdict=Verdict.INCONCLUSIVE, reason=reason, figure=figure)


def _undecided(
    speedups: Sequence[float], strict: Interval, nearest: float, coarse_grain: float
) -> tuple[VerdictReason, float]:
    """Choose the reason why sessions do not decide.

    Args:
        speedups: One per session.
        strict: Their interval at :data:`DIFFERENCE_LEVEL`.
        nearest: The point nearest to 1 of their interval at :data:`MARGIN_LEVEL`.
        coarse_grain: The clock's tick as a share of the time, if it is more than the margin; else 0.
    """
    if len(speedups) == 1:
        return VerdictReason.ONE_SESSION, ONE_SESSION_FLOOR
    if coarse_grain and _distance(strict.estimate) <= math.log1p(coarse_grain):
        return VerdictReason.COARSE_CLOCK, coarse_grain
    if strict.excludes_one:
        return VerdictReason.SMALL_DIFFERENCE, nearest
    if min(speedups) < 1 < max(speedups):
        return VerdictReason.SESSIONS_DISAGREE, max(speedups) / min(speedups)
    return VerdictReason.FEW_SESSIONS, strict.low if strict.estimate > 1 else strict.high


def object_to_bounds(bounded: Sequence[float]) -> tuple[VerdictReason, float] | None:
    """Object if the candidate is not faster when its calls took as long as they can have taken at most.

    Args:
        bounded: The speed-up of each session, were its calls that long; only of sessions with a bound.
    """
    if not bounded:
        return None  # recorded without bounds
    if len(bounded) == 1:
        return None if bounded[0] > 1 + ONE_SESSION_FLOOR else (VerdictReason.BOUND_BELOW_1, bounded[0])
    low = log_interval(bounded, DIFFERENCE_LEVEL).low
    return None if low > 1 else (VerdictReason.BOUND_BELOW_1, low)


def _chance(speedups: Sequence[float]) -> float:
    """Compute the two-sided probability of this geometric mean if the speed-up is 1; 1 for a single value."""
    if len(speedups) == 1:
        return 1.0
    logs = [math.log(speedup) for speedup in speedups]
    error = deviation(logs) / math.sqrt(len(logs))
    middle = abs(fmean(logs))
    if error == 0:
        return 0.0 if middle else 1.0
    return t_chance(middle / error, len(logs) - 1)


def _nearest(interval: Interval) -> float:
    """Return the point of an interval that is nearest to 1."""
    return min(max(interval.low, 1.0), interval.high)


def _distance(ratio: float) -> float:
    """Return the distance of a ratio from 1 on the scale of logarithms."""
    return abs(math.log(ratio)) if 0 < ratio < math.inf else math.inf


def _direction(interval: Interval) -> Verdict:
    return Verdict.FASTER if interval.estimate > 1 else Verdict.SLOWER


def _relative_grain(sessions: Sequence[WorkloadTimes]) -> float:
    """Compute the device clock's tick as a share of the shorter contestant's time; 0 if all times are of batches."""
    claimed = [times for times in sessions if not times.in_batches()]
    shares = [0.0]
    for name in (CANDIDATE, EAGER) if claimed else ():
        samples = sorted(chain.from_iterable(times.device_ns(name) for times in claimed))
        shares.append(grain_ns(samples) / median(samples))
    return max(shares)
