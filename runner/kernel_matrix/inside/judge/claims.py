"""Claimed device times, held against the judge's own clock and against what the device can do at all.

A device time is measured beside the candidate: it is a claim. The judge's clock runs from the request to the answer,
and what a call took there beyond its claim (frames, flush, the device's turn from one process to another) is the same
for everyone who does the same at the same size. So the candidate is held against the baseline of the same session:
what it leaves unexplained beyond what the baseline does is work that its claims keep quiet about.

How small a difference counts, the *resolution*, is read from the baseline's calls and from calls that run nothing. Both
sides make these among the timed ones, each behind another one of them, since a process on a slower core is slower at
either, and may come there and leave at any time. Of the candidate's own the resolution takes the share
:data:`CLAIM_SHARE` of the claim, which no lie makes larger than the truth does, and how far its empty calls are from
the baseline's, which grows as calls take a host more than empty ones.

The second a candidate could feign. If three quarters of its empty calls are slow, by :data:`FAR_NS` or by as much as
the baseline's take, up to :data:`STRETCH` times that may hide in all of its calls. Half of them, and no more, may be
slower than that, since a stall of the host hits as many: who has them so, and lies in little more than half of its
calls, hides anything there. Then its claims are of two kinds, which the samples show. The record shows the resolution
either way.

Levels are order statistics of the calls that the host disturbed least; half of the calls is looked at too, since who
lies in most calls, and not in the least disturbed ones, moves the median of the claims as well. On a busy host chance
may accuse one session in some hundreds: an accusation counts when a second series of blocks, with empty calls of its
own, repeats it.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

from kernel_matrix.model.enums import Regime, Role
from kernel_matrix.model.messages import Block, PeakSpec, TwoClocks, WorkloadSpec

LOW_RESOLUTION = "low_resolution"
"""Label: the candidate's time is too short for the two clocks to say much about it."""

LEAST_NS = 2_000
"""No resolution is better than this, nanoseconds: what it takes a host to notice an answer varies by as much."""
CLAIM_SHARE = 0.02
"""Nor better than this share of the candidate's claim: a host that waited longer wakes up later, by 30 to 50 µs where a
candidate sleeps or works on the host for milliseconds."""
REPLAY_SHARE = 0.1
"""The same of replayed calls: a sample is a graph of many kernels, whose launch takes longer on a slower core, and two
blocks of a side are too few to tell how much. No speed-up is taken from them."""
CLOCKS_DIFFER = 0.005
"""Two clocks need not agree by more than this share of what both have measured."""
SHARES = (0.25, 0.5)
"""Which of a side's calls, in the order of what they leave unexplained, stands for it."""
REACH = 5.0
"""Half-width of an order statistic's interval, in standard deviations of its rank."""
BLOCK_REACH = 12.0
"""The same for a mean over blocks; a deviation from a handful of blocks may be far too small."""
LEAST_OF_BLOCK = 4
"""A block with fewer calls has no level of its own."""
FEWEST = 7
"""With fewer calls of either side only gross lies can be told, and fewer empty calls say nothing."""
EMPTY_CALLS = 4
"""In each ``cold`` block of either side; there are two blocks at least, and then :data:`FEWEST` empty calls."""
COARSE_NS = 1_000_000
"""On a CPU, nanoseconds: its host runs other things on the same cores."""
COARSE_SHARE = 0.5
"""And so much of the wall time."""
HANDOVER_NS = 20_000
"""Least difference between two hand-overs of outputs that counts, nanoseconds."""
HANDOVER_SHARE = 0.08
"""And least share of the baseline's."""
FLUSH_SHARE = 0.25
"""A candidate that leaves so much less unexplained than everyone else did less than everyone else: no flush."""
STRETCH = 2.0
"""A real call takes its host more than an empty one, and a slower core adds in proportion: by no more than this."""
STRETCH_MARGIN = 1.25
"""How well that is known: a core that added a third to all calls was seen to add an eighth more than in proportion."""
FAR_NS = 100_000
"""Empty calls of the candidate that take so much longer than the baseline's, nanoseconds, twice as long as these, and
longer by more than the baseline's own calls differ, are not empty."""
IMPOSSIBLE = 0.95
"""Share of the least possible time below which a claim is impossible: peak rates are rounded, and so are bytes."""
SHORT = 5
"""A claim of fewer resolutions than this has little to say."""


Probes = Mapping[Role, Sequence[int]]
"""What the baseline's and the candidate's empty calls, made among the timed ones, took beyond their claims, ns."""


@dataclass(frozen=True)
class ClaimGaps:
    """What the calls of one side took beyond their claims, nanoseconds, block by block."""

    blocks: Tuple[Tuple[int, ...], ...]

    @property
    def calls(self) -> List[int]:
        """All of them in order of size."""
        return sorted(gap for block in self.blocks for gap in block)

    def level(self, share: float) -> int:
        """The call below which ``share`` of all calls are."""
        return _level(self.calls, share)

    def noise(self, share: float) -> float:
        """How far :meth:`level` may be from that of another side that does the same.

        The larger of what single calls and what whole blocks say: the order statistics :data:`REACH` standard
        deviations away by rank (binomial, distribution-free), and the spread of the blocks' own levels.
        """
        calls = self.calls
        middle = int(share * len(calls))
        reach = REACH * math.sqrt(len(calls) * share * (1 - share))
        low, high = calls[max(0, math.floor(middle - reach))], calls[min(len(calls) - 1, math.ceil(middle + reach))]
        by_call = math.sqrt(2) * max(high - calls[middle], calls[middle] - low)
        levels = [_level(sorted(block), share) for block in self.blocks if len(block) >= LEAST_OF_BLOCK]
        by_block = BLOCK_REACH * statistics.stdev(levels) * math.sqrt(2 / len(levels)) if len(levels) > 1 else 0.0
        return max(by_call, by_block)


def hold_claims(
    blocks: Sequence[Block],
    probes: Probes,
    spec: WorkloadSpec,
    peak: PeakSpec,
    l2: int,
    *,
    handovers: Mapping[str, Sequence[int]],
    output_bytes: int,
    device: str,
) -> TwoClocks:
    """How the candidate's claims in ``cold`` blocks stand against the judge's clock and against physics.

    :param probes: of the same series as the blocks.
    :param l2: bytes of the device's L2 cache: so many of the outputs need not have reached memory.
    :param handovers: what handing over the outputs took, nanoseconds, by contestant.
    :param output_bytes: of one call.
    :param device: ``cpu`` or ``cuda``.
    """
    claim = statistics.median(_candidates(blocks, Regime.COLD, "device_ns"))
    unexplained, resolution = _excess(blocks, Regime.COLD, device, probes)
    unexplained = unexplained if unexplained >= 0 else -_missing(blocks, probes)
    handover, limit = _handover(blocks, handovers, device, resolution)
    floor, reason = least_time(spec, peak, l2, output_bytes)
    return TwoClocks(
        resolution_ns=resolution,
        unexplained_ns=unexplained,
        handover_ns=handover,
        floor_ns=floor,
        floor_reason=reason,
        low_resolution=claim < SHORT * max(resolution, limit),
    )


def contradiction(
    two_clocks: TwoClocks,
    blocks: Sequence[Block],
    probes: Probes,
    *,
    handovers: Mapping[str, Sequence[int]],
    device: str,
) -> str:
    """In which words the candidate's claims contradict the judge's clock or physics; empty where they do not."""
    claim, wall = (statistics.median(_candidates(blocks, Regime.COLD, clock)) for clock in ("device_ns", "wall_ns"))
    resolution = two_clocks.resolution_ns
    if claim > wall * (1 + CLOCKS_DIFFER):
        return f"claims {_us(claim)} in a call that took {_us(wall)}"
    if two_clocks.floor_ns is not None and claim < IMPOSSIBLE * two_clocks.floor_ns:
        least = f"{_us(two_clocks.floor_ns)} is the least that its {two_clocks.floor_reason} take at peak rate"
        return f"claims {_us(claim)} for a call; {least}"
    if two_clocks.unexplained_ns > resolution:
        hidden = f"{_us(two_clocks.unexplained_ns)} more than the baseline's are unexplained"
        return f"claims {_us(claim)} of {_us(wall)}; {hidden}, and {_us(resolution)} would have been noticed"
    if device != "cpu" and _idles(blocks, probes):
        late = max(apart_of(probes, share) for share in SHARES)
        return f"takes {_us(late)} longer than the baseline for calls that run nothing"
    if _unflushed(two_clocks, blocks, device):
        missing = f"{_us(-two_clocks.unexplained_ns)} less than any other call takes for all but the model's part"
        return f"leaves {missing}: the flush before the call is missing"
    words = _handover_contradiction(two_clocks, blocks, handovers, device)
    return words or _replay_contradiction(blocks, probes, device)


def least_time(spec: WorkloadSpec, peak: PeakSpec, l2: int, output_bytes: int) -> Tuple[Optional[int], str]:
    """The least time a cold call can take, nanoseconds, and what sets it; null, and why there is none.

    Bytes ÷ peak bandwidth, where outputs count only as far as they do not fit into the L2 cache, since what is written
    there need not have reached memory; operations ÷ peak rate. Where no bytes are declared, outputs must at least be
    written.
    """
    candidates: Dict[str, float] = {}
    if peak.bytes_per_s:
        declared = spec.bytes is not None
        moved = (spec.bytes or output_bytes) - min(l2, output_bytes)
        candidates["bytes" if declared else "outputs"] = moved / peak.bytes_per_s
    if peak.flops_per_s and spec.flops is not None:
        candidates["flops"] = spec.flops / peak.flops_per_s
    possible = {reason: seconds for reason, seconds in candidates.items() if seconds > 0}
    if not possible:
        return None, "no peak rate is known" if not candidates else "all that must be moved fits into the cache"
    reason = max(possible, key=lambda name: possible[name])
    return round(possible[reason] * 1e9), reason


def _excess(blocks: Sequence[Block], regime: Regime, device: str, probes: Probes) -> Tuple[int, int]:
    """What the candidate leaves unexplained beyond the baseline, and the resolution; of the shares the worst one."""
    base, candidate = gaps_of(blocks, Role.BASELINE, regime), gaps_of(blocks, Role.CANDIDATE, regime)
    claim = statistics.median(_candidates(blocks, regime, "device_ns"))
    stretch = _stretch(base, probes)
    least = max(LEAST_NS, _spread(probes), (CLAIM_SHARE if regime is Regime.COLD else REPLAY_SHARE) * claim)
    shares: Sequence[float] = SHARES
    if device == "cpu" or min(len(base.calls), len(candidate.calls)) < FEWEST:
        wall = _level(sorted(_candidates(blocks, regime, "wall_ns")), SHARES[0])
        least, shares = max(least, COARSE_NS, COARSE_SHARE * wall), SHARES[:1]
    found = [
        (candidate.level(s) - base.level(s), math.ceil(max(least, base.noise(s)) + apart_of(probes, s) * stretch))
        for s in shares
    ]
    return max(found, key=lambda pair: pair[0] - pair[1])


def _missing(blocks: Sequence[Block], probes: Probes) -> int:
    """How much less the candidate's calls leave unexplained than the baseline's and the empty ones do; at least 0."""
    base, candidate = (gaps_of(blocks, role, Regime.COLD).level(SHARES[0]) for role in (Role.BASELINE, Role.CANDIDATE))
    empty = [_level(sorted(found), SHARES[0]) for found in probes.values() if found]
    others = min([base, *empty])
    return max(0, others - candidate)


def _unflushed(two_clocks: TwoClocks, blocks: Sequence[Block], device: str) -> bool:
    usual = gaps_of(blocks, Role.BASELINE, Regime.COLD).level(SHARES[0])
    limit = max(2 * two_clocks.resolution_ns, FLUSH_SHARE * usual)
    return device != "cpu" and -two_clocks.unexplained_ns > limit


def _handover(
    blocks: Sequence[Block], handovers: Mapping[str, Sequence[int]], device: str, resolution: int
) -> Tuple[int, int]:
    """What the candidate's hand-overs take beyond the baseline's, and how much of that would be too much.

    Never less than the ``resolution`` of the calls: what they differ by where both sides do the same, so may these.
    """
    names = {block.role: block.contestant for block in blocks}
    base, candidate = (sorted(handovers.get(names[role], ())) for role in (Role.BASELINE, Role.CANDIDATE))
    if not base or not candidate:
        return 0, COARSE_NS
    level = _level(base, SHARES[0])
    least = COARSE_NS if device == "cpu" or len(base) < FEWEST else HANDOVER_NS
    limit = max(least, resolution, HANDOVER_SHARE * level, ClaimGaps((tuple(base),)).noise(SHARES[0]))
    return _level(candidate, SHARES[0]) - level, math.ceil(limit)


def _handover_contradiction(
    two_clocks: TwoClocks, blocks: Sequence[Block], handovers: Mapping[str, Sequence[int]], device: str
) -> str:
    _excess_ns, limit = _handover(blocks, handovers, device, two_clocks.resolution_ns)
    if two_clocks.handover_ns <= limit:
        return ""
    return f"hands over its outputs in {_us(two_clocks.handover_ns)} more than the baseline, {_us(limit)} are allowed"


def _replay_contradiction(blocks: Sequence[Block], probes: Probes, device: str) -> str:
    """The same for replayed calls, whose claims and walls are those of all calls of a sample together."""
    for regime in dict.fromkeys(block.regime for block in blocks if block.regime is not Regime.COLD):
        if not all(gaps_of(blocks, role, regime).blocks for role in (Role.BASELINE, Role.CANDIDATE)):
            continue
        unexplained, resolution = _excess(blocks, regime, device, probes)
        if unexplained > resolution:
            claim = statistics.median(_candidates(blocks, regime, "device_ns"))
            return f"claims {_us(claim)} for the calls of a {regime.value} replay; {_us(unexplained)} are unexplained"
    return ""


def gaps_of(blocks: Sequence[Block], role: Role, regime: Regime) -> ClaimGaps:
    """What the calls of one side took beyond their claims; of replays, all calls of a sample together."""
    chosen = [block for block in blocks if block.role is role and block.regime is regime]
    return ClaimGaps(tuple(_gaps(block) for block in chosen))


def _gaps(block: Block) -> Tuple[int, ...]:
    """Of each call but the first, which finds its process asleep: its wake-up is no work."""
    found = tuple((wall - claim) * block.calls_per_sample for wall, claim in zip(block.wall_ns, block.device_ns))
    return found[1:] or found


def _candidates(blocks: Sequence[Block], regime: Regime, clock: str) -> List[int]:
    """The candidate's samples by ``device_ns`` or ``wall_ns``; of replays, all calls of a sample together."""
    chosen = [block for block in blocks if block.role is Role.CANDIDATE and block.regime is regime]
    return [ns * block.calls_per_sample for block in chosen for ns in getattr(block, clock)]


def _level(ordered: Sequence[int], share: float) -> int:
    return ordered[int(share * len(ordered))]


def apart_of(probes: Probes, share: float) -> int:
    """How far the calls below which ``share`` of each side's empty calls are lie apart, nanoseconds.

    Two processes that do the same differ by tens of microseconds where their cores do, for as long as they stay there.
    """
    base, candidate = _empty(probes)
    if min(len(base), len(candidate)) < FEWEST:
        return 0
    return abs(_level(candidate, share) - _level(base, share))


def _idles(blocks: Sequence[Block], probes: Probes) -> bool:
    """Whether the candidate's empty calls take far longer than the baseline's, at any of the shares looked at.

    As a stall of the host may hit half of them, more than half must, and for the lower share more than three quarters.
    """
    base, candidate = _empty(probes)
    if min(len(base), len(candidate)) < FEWEST:
        return False
    calls = gaps_of(blocks, Role.BASELINE, Regime.COLD)
    limits = [(s, _level(base, s) + max(FAR_NS, _level(base, s), calls.noise(s))) for s in SHARES]
    return any(sum(ns > limit for ns in candidate) > (1 - s) * len(candidate) for s, limit in limits)


def _stretch(base: ClaimGaps, probes: Probes) -> float:
    """How many times as much a core that is slower may add to a call as to an empty one."""
    empty, _candidates = _empty(probes)
    usual = _level(empty, SHARES[0]) if empty else 0
    return min(STRETCH, STRETCH_MARGIN * max(1.0, base.level(SHARES[0]) / usual)) if usual > 0 else STRETCH_MARGIN


def _spread(probes: Probes) -> float:
    """Distance between the quartiles of the baseline's empty calls, nanoseconds."""
    ordered, _candidates = _empty(probes)
    return float(_level(ordered, 0.75) - _level(ordered, 0.25)) if ordered else 0.0


def _empty(probes: Probes) -> Tuple[List[int], List[int]]:
    """The empty calls of the baseline and those of the candidate, in order of size."""
    return sorted(probes.get(Role.BASELINE, ())), sorted(probes.get(Role.CANDIDATE, ()))


def _us(nanoseconds: float) -> str:
    return f"{nanoseconds / 1e3:.1f} µs"
