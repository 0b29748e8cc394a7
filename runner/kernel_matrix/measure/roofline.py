"""Achieved rates against the device's peak rates.

The roofline model (Williams, Waterman, Patterson, CACM 52, 2009): a computation of ``flops`` operations on ``bytes``
bytes takes at least the longer of ``flops ÷ peak FLOP/s`` and ``bytes ÷ peak bytes/s``.
"""

from __future__ import annotations

from dataclasses import dataclass

COMPUTE = "compute"
MEMORY = "memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """An amount of work, or a rate; None where it is unknown."""

    flops: float | None = None
    bytes: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofline:
    """Position of a time under the roofline; None where work or peak is unknown."""

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
        """The larger of the two shares: the least possible time ÷ the time."""
        return max((u for u in (self.mfu, self.bandwidth_utilisation) if u is not None), default=None)

    @property
    def bound(self) -> str | None:
        """``compute`` or ``memory``, the resource that limits this workload; None unless both shares are known."""
        if self.mfu is None or self.bandwidth_utilisation is None:
            return None
        return COMPUTE if self.mfu > self.bandwidth_utilisation else MEMORY


def roofline(time_ns: float, work: Work, peak: Work) -> Roofline:
    """Compute the achieved rates of a call that took ``time_ns``.

    ``work`` is the FLOPs of one call and the bytes that it must move at least; ``peak`` is the device's rates.
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
