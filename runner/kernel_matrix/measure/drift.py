"""Machine drift and code drift, told apart by the judge's own fixed kernels (anchors).

The anchors take longer when the machine slows down. The part of a candidate's change between sessions that they do
not explain belongs to the candidate.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

Anchor = tuple[float, float]
"""Times of the arithmetic and of the copying kernel, nanoseconds."""


def machine_drift(anchors: Sequence[Anchor]) -> float | None:
    """Compute the largest relative difference between two readings of the same anchor; None for fewer than two.

    Give readings of one session for the drift within it, of all sessions for the drift over all.
    """
    usable = _usable(anchors)
    if len(usable) < 2:
        return None
    return max(_relative_range(times) for times in zip(*usable, strict=True))


def code_drift(medians_ns: Sequence[float], anchors: Sequence[Sequence[Anchor]]) -> float | None:
    """Compute the relative range of a time over sessions after dividing out the machine's drift.

    A kernel's time may follow the arithmetic anchor, the memory anchor or neither, so the smallest of the three
    ranges is the unexplained part. There is one median and one sequence of readings per session. None for fewer than
    two sessions, or a session without a usable reading.
    """
    usable = [_usable(session) for session in anchors]
    if len(medians_ns) < 2 or not all(usable):
        return None
    arithmetic, memory = (
        [
            time_ns / fmean(anchor[kind] for anchor in session)
            for time_ns, session in zip(medians_ns, usable, strict=True)
        ]
        for kind in (0, 1)
    )
    return min(_relative_range(values) for values in (medians_ns, arithmetic, memory))


def _usable(anchors: Sequence[Anchor]) -> list[Anchor]:
    return [anchor for anchor in anchors if all(anchor)]


def _relative_range(values: Sequence[float]) -> float:
    return max(values) / min(values) - 1
