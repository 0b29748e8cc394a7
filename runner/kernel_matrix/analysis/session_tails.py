"""A test of heavy tails between sessions that does not depend on how much each cell varies."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Final

import numpy as np
import polars as pl

from kernel_matrix.analysis.timed_sessions import OF, TimedSessions, squares_around

_CERTAIN: Final = 3.0
"""Standard errors beyond which the tails are heavier than normal."""
_MOST: Final = 30
"""Sessions of a group up to which it is used; more are rare, and show their tails in other groups as well."""
_TELLING: Final = 4
"""Sessions from which a group says enough."""
_FEWEST: Final = 100
"""Such groups that show tails as heavy as Student's with three degrees of freedom."""
_DRAWN: Final = 4000


def session_groups(measured: TimedSessions) -> pl.DataFrame:
    """Describe the sessions of each cell in a night on a unit, where there are at least three.

    Returns:
        Per group and measure the number of values ``n_<of>`` and, as a share of the sum of their squares around their
        mean, the largest: ``share_<of>``, null if all are equal.
    """
    values = measured.values.filter(pl.len().over("cell") >= 3)  # most cells may have one session
    columns = []
    for of in OF:
        value = pl.col(f"log_{of}")
        largest = pl.max_horizontal(value.max() - value.mean(), value.mean() - value.min()) ** 2
        squares = squares_around(value)
        columns.append(value.count().alias(f"n_{of}"))
        columns.append(pl.when(squares > 0).then(largest / squares).alias(f"share_{of}"))
    groups = values.group_by("cell", "host", "unit", "night").agg(columns)
    return groups.drop("cell", "host", "unit", "night")


def have_heavy_tails(groups: pl.DataFrame, of: str) -> bool:
    """Return whether the sessions of a night on a unit have heavier tails than normal noise, over all cells.

    Each group's largest square around its mean, as a share of their sum, is compared with that of normal noise.

    Args:
        groups: As :func:`session_groups` describes them.
        of: Measure.
    """
    used = groups.select(n=f"n_{of}", share=f"share_{of}").drop_nulls().filter(pl.col("n").is_between(3, _MOST))
    excess = variance = 0.0
    for count, total, number in used.group_by("n").agg(pl.col("share").sum(), many=pl.len()).rows():
        mean, spread = _usual_share(count)
        excess += total - number * mean
        variance += number * spread
    return variance > 0 and excess > _CERTAIN * math.sqrt(variance)


def shows_tails(groups: pl.DataFrame, of: str) -> bool:
    """Return whether there are enough sessions to see heavy tails: with three, the largest share says little."""
    return groups.filter(pl.col(f"n_{of}").is_between(_TELLING, _MOST)).height >= _FEWEST


@lru_cache(maxsize=_MOST)
def _usual_share(count: int) -> tuple[float, float]:
    """Return mean and variance of the largest share of the squares of normal noise."""
    drawn = np.random.default_rng(count).normal(size=(_DRAWN, count))
    squares = (drawn - drawn.mean(axis=1, keepdims=True)) ** 2
    share = squares.max(axis=1) / squares.sum(axis=1)
    return float(share.mean()), float(share.var())
