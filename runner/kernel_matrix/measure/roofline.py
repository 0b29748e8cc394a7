"""Achieved rates against what the device can do at most.

The roofline model (Williams, Waterman, Patterson, CACM 52, 2009): a computation of ``flops`` operations on ``bytes``
bytes takes at least the longer of ``flops ÷ peak FLOP/s`` and ``bytes ÷ peak bytes/s``.
"""

from __future__ import annotations

from dataclasses import dataclass

COMPUTE = "compute"
MEMORY = "memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """An amount of work, or a rate of it; null where it is not known."""

    flops: float | None = None
    bytes: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofline:
    """Where a time lies under the roof; null where work or peak are not known."""

    flops_per_s: float | None
    bytes_per_s: float | None
    mfu: float | None
    """Achieved FLOP/s ÷ peak: the model FLOPs utilisation."""
    bandwidth_utilisation: float | None
    """Achieved bytes/s ÷ peak."""
    intensity: float | None
    """FLOPs per byte."""

    @property
    def utilisation(self) -> float | None:
        """The larger of the two: how close the time is to the least possible one."""
        return max((u for u in (self.mfu, self.bandwidth_utilisation) if u is not None), default=None)

    @property
    def bound(self) -> str | None:
        """``compute`` or ``memory``, whichever limits this much work on this many bytes; null unless both are known."""
        if self.mfu is None or self.bandwidth_utilisation is None:
            return None
        return COMPUTE if self.mfu > self.bandwidth_utilisation else MEMORY


def roofline(time_ns: float, work: Work, peak: Work) -> Roofline:
    """Where a call that took ``time_ns`` lies.

    :param work: FLOPs of one call, and bytes it must move at least.
    :param peak: the same per second.
    """
    flops_per_s, bytes_per_s = _per_second(work.flops, time_ns), _per_second(work.bytes, time_ns)
    return Roofline(
        flops_per_s=flops_per_s,
        bytes_per_s=bytes_per_s,
        mfu=_ratio(flops_per_s, peak.flops),
        bandwidth_utilisation=_ratio(bytes_per_s, peak.bytes),
        intensity=_ratio(work.flops, work.bytes),
    )


def _per_second(amount: float | None, time_ns: float) -> float | None:
    return amount / time_ns * 1e9 if amount and time_ns else None


def _ratio(part: float | None, whole: float | None) -> float | None:
    return part / whole if part and whole else None
