"""Machine drift against code drift: the judge's own fixed kernels take longer when the machine slows down.

What they do not explain of a candidate's change from session to session is the candidate's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

Anchor = tuple[float, float]
"""Times of the arithmetic and of the copying kernel, nanoseconds."""


def machine_drift(anchors: Sequence[Anchor]) -> float | None:
    """Largest relative distance between any two readings of the same kernel; null for fewer than two readings.

    :param anchors: of one session, to see it within; of all sessions, to see it between them too.
    """
    usable = _usable(anchors)
    if len(usable) < 2:  # two ends of a drift
        return None
    return max(_apart(times) for times in zip(*usable, strict=True))


def code_drift(medians_ns: Sequence[float], anchors: Sequence[Sequence[Anchor]]) -> float | None:
    """What remains of a time's relative spread over sessions once the machine's own has been divided out.

    A time may follow the arithmetic, the memory or neither, so the least of the three spreads is what nothing explains.

    :param medians_ns: one per session.
    :param anchors: that session's readings, in the same order.
    """
    usable = [_usable(session) for session in anchors]
    if len(medians_ns) < 2 or not all(usable):  # two ends of a drift
        return None
    arithmetic, memory = (
        [
            time_ns / fmean(anchor[kind] for anchor in session)
            for time_ns, session in zip(medians_ns, usable, strict=True)
        ]
        for kind in (0, 1)
    )
    return min(_apart(values) for values in (medians_ns, arithmetic, memory))


def _usable(anchors: Sequence[Anchor]) -> list[Anchor]:
    return [anchor for anchor in anchors if all(anchor)]


def _apart(values: Sequence[float]) -> float:
    return max(values) / min(values) - 1
