"""Confidence intervals from few sessions.

Times are positive and their errors multiply, so means and spreads are taken of logarithms: the estimate is the
geometric mean, and Student's t gives the interval (Student, *The probable error of a mean*, Biometrika 6, 1908).
This interval holds its level from two sessions on; a bootstrap needs about ten.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

LEVEL = 0.95
"""Confidence level of every interval that is shown to a reader."""


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with the bounds of its confidence interval."""

    estimate: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        """Relative half-width: 0.01 means ± 1 %."""
        return math.sqrt(self.high / self.low) - 1 if self.low > 0 else math.inf

    @property
    def excludes_one(self) -> bool:
        """True if a ratio of 1 lies outside the interval."""
        return not self.low <= 1 <= self.high


def log_interval(values: Sequence[float], level: float = LEVEL) -> Interval:
    """Compute the two-sided t interval of the geometric mean of ``values``, one per session.

    The interval of a single value is 0 to infinity.

    Raises:
        ValueError: ``values`` is empty, or a value is not positive.
    """
    if not values or min(values) <= 0:
        raise ValueError("an interval needs at least one value, all of them positive")
    logs = [math.log(value) for value in values]
    middle = fmean(logs)
    if len(logs) == 1:
        return Interval(math.exp(middle), 0.0, math.inf)
    reach = float(t_quantile(len(logs) - 1, level)) * deviation(logs) / math.sqrt(len(logs))
    return Interval(math.exp(middle), exp(middle - reach), exp(middle + reach))


def deviation(values: Sequence[float]) -> float:
    """Compute the sample standard deviation of two values or more.

    :func:`statistics.stdev` computes in exact fractions and is slow enough to dominate a merge.
    """
    middle = fmean(values)
    return math.sqrt(math.fsum((value - middle) ** 2 for value in values) / (len(values) - 1))


def exp(exponent: float) -> float:
    """Compute the exponential; infinity where it would overflow, as in an interval of two very different values."""
    return math.exp(exponent) if exponent < 700 else math.inf  # exp(710) overflows


def t_quantile(degrees: Any, level: float = LEVEL) -> Any:
    """Compute Student's two-sided quantile for degrees of freedom, a number or an array; NaN unless above 0."""
    from scipy.special import stdtrit  # type: ignore[import-untyped]  # noqa: PLC0415  # no types; loads for 0.2 s

    return stdtrit(degrees, (1 + level) / 2)


def t_chance(t: float, degrees: float) -> float:
    """Compute the two-sided probability of a Student's t at least as far from 0."""
    from scipy.special import stdtr  # noqa: PLC0415  # as above

    return 2 * float(stdtr(degrees, -abs(t)))
