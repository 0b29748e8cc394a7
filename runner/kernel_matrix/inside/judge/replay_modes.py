"""How calls are replayed for each regime but ``cold``: how many behind one sample, and what comes before it.

A replayed call starts right behind the one before, from a CUDA graph where that can be captured, so that neither a
launch nor the judge is in between. Times are per call of the contestant concerned, which its ``cold`` calls foretell.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Mapping

from kernel_matrix.model.enums import Regime

NOT_CAPTURABLE = "not_capturable"
"""Label, with the contestant's name behind a colon: its calls were replayed one by one, not from a CUDA graph."""

MOST_SAMPLES = 10
"""Samples of a block."""
FEWEST_SAMPLES = 3
"""The same where one block would take longer than :data:`BLOCK_NS`."""
BLOCK_NS = 1_000_000_000


@dataclass(frozen=True)
class ReplayMode:
    """What makes a regime."""

    busy_ns: int
    """A sample's calls take so long at most, where they are more than one."""
    most_calls: int
    """Calls behind one sample at most."""
    rest_s: float = 0.0
    """The device rests for so long before each sample."""
    lead_s: float = 0.0
    """And is busy with nothing but these calls for so long before each block."""


MANNERS: Mapping[Regime, ReplayMode] = {
    Regime.WARM: ReplayMode(busy_ns=50_000_000, most_calls=20),
    Regime.BURST: ReplayMode(busy_ns=5_000_000, most_calls=100, rest_s=0.02),
    Regime.SUSTAINED: ReplayMode(busy_ns=50_000_000, most_calls=1000, lead_s=1.0),
}


@dataclass(frozen=True)
class BlockPlan:
    """How one block of a regime is taken of one contestant."""

    regime: Regime
    calls: int
    """Behind each sample."""
    samples: int
    rest_s: float
    lead_s: float


def plan_of(regime: Regime, call_ns: float) -> BlockPlan:
    """The plan for a contestant whose calls take ``call_ns`` nanoseconds.

    :raises KeyError: for ``cold``, whose calls are not replayed.
    """
    manner = MANNERS[regime]
    call_ns = max(call_ns, 1.0)
    calls = _between(1, int(manner.busy_ns / call_ns), manner.most_calls)
    samples = _between(FEWEST_SAMPLES, int(BLOCK_NS / (calls * call_ns)), MOST_SAMPLES)
    return BlockPlan(regime, calls, samples, manner.rest_s, manner.lead_s)


def _between(low: int, value: int, high: int) -> int:
    return min(max(value, low), high)
