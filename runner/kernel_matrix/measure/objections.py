"""Objections to the timed calls of a workload: no verdict is given on times that the audit would warn of.

They concern single calls, timed by the contestant's own process. Times in batches are the judge's.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from statistics import median

from kernel_matrix.measure.timed import CANDIDATE, EAGER, WorkloadTimes
from kernel_matrix.model.enums import VerdictReason

FEWEST_CALLS = 10
"""Calls in a session needed for a median that one outlier cannot move."""
FAR = 1.5
"""Factor from the median beyond which a call cannot be the same work under the same conditions."""
FAR_SHARE = 0.2
"""Share of such calls above which the median does not describe them; the first of each block is often late."""


def object_to_calls(sessions: Sequence[WorkloadTimes]) -> tuple[VerdictReason, float] | None:
    """Return the objection to the calls of more than half of the sessions, with its figure; None if there is none.

    The figure is that of the worse contestant, and its median over sessions.
    """
    calls = [[times.device_ns(name) for name in (CANDIDATE, EAGER)] for times in sessions if not times.in_batches()]
    if 2 * len(calls) <= len(sessions):
        return None
    fewest = median(min(map(len, sides)) for sides in calls)
    if fewest < FEWEST_CALLS:
        return VerdictReason.FEW_CALLS, fewest
    share = median(max(map(_far_share, sides)) for sides in calls)
    return (VerdictReason.SCATTERED, share) if share > FAR_SHARE else None


def _far_share(ordered: Sequence[int]) -> float:
    middle = median(ordered)
    within = bisect_right(ordered, middle * FAR) - bisect_left(ordered, middle / FAR)
    return 1 - within / len(ordered)
