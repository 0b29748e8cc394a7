"""What ``python -m kernel_matrix.inside.probe conformance`` measures on a device; the host judges it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Mapping, Optional, Tuple

from kernel_matrix.inside.platform import DeviceHealth


@dataclass(frozen=True)
class ArenaProof:
    """An arena that two processes had open at the same time, each of which wrote a random pattern into it."""

    nbytes: int
    read_by_worker: bool
    """The worker's process read what the judge's had written."""
    read_by_judge: bool
    """The judge's process read what the worker's had written."""


@dataclass(frozen=True)
class TimedWork:
    """The shortest of some calls that copy a buffer so many times."""

    copies: int
    device_ns: int
    """By the platform's timer."""
    wall_ns: int
    """By the host's clock, of the same call."""


@dataclass(frozen=True)
class DeviceMeasurements:
    """All that was measured."""

    transport: str
    arenas: Tuple[ArenaProof, ...]
    reason: str
    """Why arenas were not proven; empty if all could be opened."""
    cache_bytes: int
    """Size of the cache that is flushed; 0 where none is."""
    cold_read_ns: Optional[int]
    """Median time of reading a part of it after a flush; None where none is flushed."""
    warm_read_ns: Optional[int]
    """Median time of reading the same again."""
    works: Tuple[TimedWork, ...]
    """Once, twice and four times the work."""
    bytes_per_s: float
    flops_per_s: Mapping[str, float]
    """Dtype → rate of matrix products."""
    health: DeviceHealth
