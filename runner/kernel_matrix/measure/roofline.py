"""Achieved rates against the device's peak rates.

The roofline model (Williams, Waterman, Patterson, CACM 52, 2009): a computation of ``flops`` operations on ``bytes``
bytes takes at least the longer of ``flops ÷ peak FLOP/s`` and ``bytes ÷ peak bytes/s``. Of several ranks, what a rank
sends to others is a third limit: see :mod:`kernel_matrix.measure.bus_bandwidth`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

COMPUTE = "compute"
MEMORY = "memory"
LINK = "link"


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """An amount of work, or a rate; None where it is unknown."""

    flops: float | None = None
    bytes: float | None = None
    link_bytes: float | None = None
    """Bytes over the link to other ranks, in one direction."""


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
    link_bytes_per_s: float | None
    """Achieved bytes/s over the link to other ranks."""
    link_utilisation: float | None
    """``link_bytes_per_s`` ÷ peak."""
    bound: str | None
    """``compute``, ``memory`` or ``link``, the resource that limits this workload; None unless compute's and memory's
    shares are known."""

    @property
    def utilisation(self) -> float | None:
        """The larger of the shares of compute and memory: the least possible time on this device ÷ the time."""
        return max((u for u in (self.mfu, self.bandwidth_utilisation) if u is not None), default=None)


def roofline(time_ns: float, work: Work, peak: Work) -> Roofline:
    """Compute the achieved rates of a call that took ``time_ns``.

    ``work`` is the FLOPs of one call and the bytes that it must move at least; ``peak`` is the device's rates.
    """
    flops_per_s, bytes_per_s = _per_second(work.flops, time_ns), _per_second(work.bytes, time_ns)
    link_bytes_per_s = _per_second(work.link_bytes, time_ns)
    mfu, memory, link = (
        _ratio(flops_per_s, peak.flops),
        _ratio(bytes_per_s, peak.bytes),
        _ratio(link_bytes_per_s, peak.link_bytes),
    )
    return Roofline(
        flops_per_s=flops_per_s,
        bytes_per_s=bytes_per_s,
        mfu=mfu,
        bandwidth_utilisation=memory,
        intensity=_ratio(work.flops, work.bytes),
        link_bytes_per_s=link_bytes_per_s,
        link_utilisation=link,
        # A collective that computes nothing has no share of compute, and may be limited by the link.
        bound=LINK if link and link > _largest(0.0 if work.flops == 0 else mfu, memory) else _bound(mfu, memory),
    )


def _largest(*shares: float | None) -> float:
    """Return the largest share; infinity if one is unknown."""
    return max(math.inf if share is None else share for share in shares)


def _bound(mfu: float | None, memory: float | None) -> str | None:
    if mfu is None or memory is None:
        return None
    return COMPUTE if mfu > memory else MEMORY


def _per_second(amount: float | None, time_ns: float) -> float | None:
    return amount / time_ns * 1e9 if amount and time_ns else None


def _ratio(part: float | None, whole: float | None) -> float | None:
    return part / whole if part and whole else None
