"""Replay of calls in all regimes except ``cold``: calls per sample, and idle or busy time before it.

A replayed call starts directly after the previous one, from a CUDA graph if it can be captured, without a launch or the
judge in between. Durations per call are estimated from the contestant's ``cold`` calls.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Mapping

from kernel_matrix.model.enums import Regime

NOT_CAPTURABLE = "not_capturable"  # label, with ``:`` and the contestant: calls were replayed without a CUDA graph

MOST_SAMPLES = 10  # per block
FEWEST_SAMPLES = 3  # per block that would otherwise take longer than BLOCK_NS
BLOCK_NS = 1_000_000_000


@dataclass(frozen=True)
class ReplayMode:
    """Parameters of a regime."""

    busy_ns: int
    """Longest time of a sample with more than one call."""
    most_calls: int
    """Most calls per sample."""
    rest_s: float = 0.0
    """Idle time before each sample."""
    lead_s: float = 0.0
    """Time before each block during which the device runs only these calls."""


REPLAY_MODES: Mapping[Regime, ReplayMode] = {
    Regime.WARM: ReplayMode(busy_ns=50_000_000, most_calls=20),
    Regime.BURST: ReplayMode(busy_ns=5_000_000, most_calls=100, rest_s=0.02),
    Regime.SUSTAINED: ReplayMode(busy_ns=50_000_000, most_calls=1000, lead_s=1.0),
}


@dataclass(frozen=True)
class BlockPlan:
    """Parameters of one block of one contestant."""

    regime: Regime
    calls: int
    """Calls per sample."""
    samples: int
    rest_s: float
    lead_s: float


def plan_of(regime: Regime, call_ns: float) -> BlockPlan:
    """Return the plan for a contestant whose calls take ``call_ns`` nanoseconds.

    Raises:
        KeyError: For ``cold``, whose calls are not replayed.
    """
    mode = REPLAY_MODES[regime]
    call_ns = max(call_ns, 1.0)
    calls = _between(1, int(mode.busy_ns / call_ns), mode.most_calls)
    samples = _between(FEWEST_SAMPLES, int(BLOCK_NS / (calls * call_ns)), MOST_SAMPLES)
    return BlockPlan(regime, calls, samples, mode.rest_s, mode.lead_s)


def _between(low: int, value: int, high: int) -> int:
    return min(max(value, low), high)
