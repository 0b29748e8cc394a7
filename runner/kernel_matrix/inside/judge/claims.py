"""Checking claimed device times against the judge's own clock and against the hardware's peak rates.

A device time is measured in the candidate's process, so it is a claim. The judge's clock runs from the request to the
answer. The *gap* of a call is the part of this time that the claim does not explain: frames, the cache flush, and the
device's switch from one process to another. The gap is equal for all processes that do the same work on the same sizes.
So the candidate is compared with the baseline of the same session: what its gap exceeds the baseline's by is work that
its claims leave out.

The *resolution* is the smallest difference that counts. It comes from the baseline's calls alone: their noise, and
the share :data:`APART_SHARE` of their gap, by which two processes may differ that do the same on different cores. One
part comes from the candidate, the share :data:`CLAIM_SHARE` of its claim, which no false claim makes larger than the
true time does. Where there are batches, speed-ups do not rest on claims; elsewhere work that is hidden below the
resolution changes none by more than the bound allows.

Levels are order statistics of the calls that the host disturbed least. One near the median is checked too, since a
candidate that understates its time in most calls, but not in the least disturbed ones, moves the median of the claims.
On a busy host, chance accuses about one session in some hundreds. So an accusation counts only if a second series of
blocks confirms it.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

from kernel_matrix.inside.batch_times import call_times, longest_ns
from kernel_matrix.inside.platform import load_platform
from kernel_matrix.inside.wire import MAX_DEVICE_NS
from kernel_matrix.model.enums import Implementation, Regime, Role
from kernel_matrix.model.messages import CLOCK_ROOM, BatchBlock, Block, PeakSpec, TwoClocks, WorkloadSpec

CANDIDATE, EAGER = Role.CANDIDATE.value, Implementation.EAGER.value  # names of contestants

LOW_RESOLUTION = "low_resolution"  # label: calls so short that the bound is far above their time

LEAST_NS = 2_000  # least resolution: the time in which a host notices an answer varies by as much
# Least resolution as a share of the candidate's claim: a host that waited longer wakes up later, by 30 to 50 µs if a
# candidate sleeps or works on the host for milliseconds.
CLAIM_SHARE = 0.02
# The same for replayed calls: a sample is a graph of many kernels, which launches more slowly on a slower core, and two
# blocks per side are too few to measure that. No speed-up is computed from them.
REPLAY_SHARE = 0.1
CLOCKS_DIFFER = 0.005  # two clocks may differ by this share of the time that both have measured
SHARES = (0.25, 0.4)  # quantiles of a side's gaps that are compared; a stall of the host may affect half of its calls
REACH = 5.0  # half-width of an order statistic's interval, in standard deviations of its rank
BLOCK_REACH = 12.0  # the same for a mean over blocks; the deviation of a handful of blocks may be far too small
LEAST_OF_BLOCK = 4  # a block with fewer calls has no level of its own
FEWEST = 7  # with fewer calls per side only large differences count
LEAST_OVERHEAD = 0.1  # quantile; a single quickest call may be an error of the clock
COARSE_NS = 1_000_000  # least resolution on a CPU, whose host runs other work on the same cores
COARSE_SHARE = 0.5  # and its share of the wall time
HANDOVER_NS = 20_000  # least difference between two hand-overs of outputs that counts
HANDOVER_SHARE = 0.08  # and its share of the baseline's hand-over
# Two processes that do the same may differ by this share of the baseline's gap, each on its core for a whole session.
# In 834 honest sessions on an H200 (``results/example-h200``) the gap was 265 µs, the resolution that follows 200 µs;
# one session exceeded it, by 8 µs.
APART_SHARE = 0.5
IMPOSSIBLE = 0.95  # a claim below this share of the least possible time is false; peak rates and bytes are rounded
SHORT = 5  # a claim of fewer resolutions than this has little meaning


@dataclass(frozen=True)
class ClaimGaps:
    """Gaps between the judge's clock and the claims of one side, nanoseconds, block by block."""

    blocks: Tuple[Tuple[int, ...], ...]

    @property
    def calls(self) -> List[int]:
        """All gaps in ascending order."""
        return sorted(gap for block in self.blocks for gap in block)

    def level(self, share: float) -> int:
        """Return the ``share`` quantile of all gaps."""
        return _level(self.calls, share)

    def noise(self, share: float) -> float:
        """Return the distance that :meth:`level` may have from that of another side that does the same work.

        It is the larger one of two estimates: the order statistics :data:`REACH` standard deviations away by rank
        (binomial, distribution-free), and the spread of the blocks' own levels.
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
    spec: WorkloadSpec,
    peak: PeakSpec,
    l2: int,
    *,
    handovers: Mapping[str, Sequence[int]],
    deliveries: Mapping[str, Sequence[int]],
    output_bytes: int,
    device: str,
    batches: Optional[Sequence[BatchBlock]] = None,
    batches_broken: bool = False,
) -> TwoClocks:
    """Compare the candidate's claims in ``cold`` blocks with the judge's clock and with the peak rates.

    Args:
        blocks: Timed blocks of all contestants.
        spec: The workload, with its bytes and operations.
        peak: Peak rates of the device.
        l2: Bytes of the device's L2 cache; as many bytes of the outputs need not have reached memory.
        handovers: Contestant → times of handing over the outputs, nanoseconds.
        deliveries: Contestant → times of delivering the inputs, nanoseconds.
        output_bytes: Bytes of one call's outputs.
        device: Name of the platform.
        batches: Batches of all contestants; None if none were asked for.
        batches_broken: Whether memory ran out in them; the bound is then without end.
    """
    claim = statistics.median(_candidates(blocks, Regime.COLD, "device_ns"))
    unexplained, resolution = _excess(blocks, Regime.COLD, device)
    handover, limit = _handover(blocks, handovers, device, resolution)
    accelerator = load_platform(device).IS_ACCELERATOR
    floor, reason = least_time(spec, peak, l2, output_bytes)
    # Noise of the baseline's overhead may take it below the claim, which then is the longer time.
    # On a CPU work that begins with the delivery does not delay it.
    waits = (deliveries, handovers) if accelerator else (handovers,)
    bound = None if accelerator and batches is None else max(wall_bound(blocks, *waits), round(claim))
    call = claim
    if batches:
        longest = longest_ns(batches, CANDIDATE, EAGER)
        call = statistics.median(call_times(batches, CANDIDATE, EAGER))
        bound = MAX_DEVICE_NS if math.isinf(longest) else round(longest)
    if batches_broken:
        bound = MAX_DEVICE_NS
    low_resolution = claim < SHORT * max(resolution, limit)
    if accelerator and bound is not None:
        low_resolution = bound - call > call / SHORT
    return TwoClocks(
        resolution_ns=resolution,
        unexplained_ns=unexplained,
        handover_ns=handover,
        floor_ns=floor,
        floor_reason=reason,
        low_resolution=low_resolution,
        bound_ns=bound,
    )


def wall_bound(blocks: Sequence[Block], *waits: Mapping[str, Sequence[int]]) -> int:
    """Return the longest that the candidate's cold calls can have taken by the judge's clock, median, nanoseconds.

    It is the time of the call and of ``waits``, which are those before it and after it (the delivery of its inputs, in
    which work on a GPU may begin; taking its outputs), less the overhead of the baseline's quickest calls
    (:data:`LEAST_OVERHEAD`). No claim of the candidate's is in it.
    """
    whole, overhead = (_with_waits(blocks, waits, role) for role in (Role.CANDIDATE, Role.BASELINE))
    least = _level(sorted(taken - claim for taken, claim in overhead), LEAST_OVERHEAD)
    return max(1, round(statistics.median(taken for taken, _claim in whole)) - least)


def _with_waits(
    blocks: Sequence[Block], waits: Sequence[Mapping[str, Sequence[int]]], role: Role
) -> List[Tuple[int, int]]:
    """Return, per cold call of one side, the judge's time of it together with the waits, and the claim."""
    chosen = [block for block in blocks if block.role is role and block.regime is Regime.COLD]
    walls = [wall for block in chosen for wall in block.wall_ns]
    claims = [claim for block in chosen for claim in block.device_ns]
    beside = [one.get(chosen[0].contestant, ()) or [0] * len(walls) for one in waits]
    return [(sum(times), claim) for *times, claim in zip(walls, *beside, claims)]


def contradiction(
    two_clocks: TwoClocks, blocks: Sequence[Block], *, handovers: Mapping[str, Sequence[int]], device: str
) -> str:
    """Describe how the candidate's claims contradict the judge's clock or the peak rates; empty if they do not."""
    claim, wall = (statistics.median(_candidates(blocks, Regime.COLD, clock)) for clock in ("device_ns", "wall_ns"))
    resolution = two_clocks.resolution_ns
    if claim > wall * (1 + CLOCKS_DIFFER):
        return f"claims {_us(claim)} in a call that took {_us(wall)}"
    if two_clocks.floor_ns is not None and claim < IMPOSSIBLE * two_clocks.floor_ns:
        least = f"{_us(two_clocks.floor_ns)} is the least that its {two_clocks.floor_reason} take at peak rate"
        return f"claims {_us(claim)} for a call; {least}"
    if two_clocks.unexplained_ns > resolution:
        hidden = f"{_us(two_clocks.unexplained_ns)} more than the baseline's are unexplained"
        return f"claims {_us(claim)} of {_us(wall)}; {hidden}, and the resolution is {_us(resolution)}"
    words = _handover_contradiction(two_clocks, blocks, handovers, device)
    return words or _replay_contradiction(blocks, device)


def least_time(spec: WorkloadSpec, peak: PeakSpec, l2: int, output_bytes: int) -> Tuple[Optional[int], str]:
    """Return the least possible time of a cold call, nanoseconds, and its cause; or None, and the reason.

    The time is the larger one of bytes ÷ peak bandwidth and operations ÷ peak rate at the highest clock. Outputs count
    only as far as they exceed the L2 cache, since data in the cache need not have reached memory. If no bytes are
    declared, at least the outputs must be written.
    """
    candidates: Dict[str, float] = {}
    if peak.bytes_per_s:
        declared = spec.bytes is not None
        moved = (spec.bytes or output_bytes) - min(l2, output_bytes)
        candidates["bytes" if declared else "outputs"] = moved / peak.bytes_per_s
    if peak.flops_per_s and spec.flops is not None:
        candidates["flops"] = spec.flops / (peak.flops_per_s * CLOCK_ROOM)
    possible = {reason: seconds for reason, seconds in candidates.items() if seconds > 0}
    if not possible:
        return None, "no peak rate is known" if not candidates else "all that must be moved fits into the cache"
    reason = max(possible, key=lambda name: possible[name])
    return round(possible[reason] * 1e9), reason


def _excess(blocks: Sequence[Block], regime: Regime, device: str) -> Tuple[int, int]:
    """Return the candidate's gap beyond the baseline's, and the resolution, for the worst of the quantiles."""
    base, candidate = gaps_of(blocks, Role.BASELINE, regime), gaps_of(blocks, Role.CANDIDATE, regime)
    claim = statistics.median(_candidates(blocks, regime, "device_ns"))
    accelerator = load_platform(device).IS_ACCELERATOR
    apart = APART_SHARE if accelerator else 0.0  # a CPU's least resolution is coarser
    least = max(LEAST_NS, (CLAIM_SHARE if regime is Regime.COLD else REPLAY_SHARE) * claim)
    shares: Sequence[float] = SHARES
    if not accelerator or min(len(base.calls), len(candidate.calls)) < FEWEST:
        wall = _level(sorted(_candidates(blocks, regime, "wall_ns")), SHARES[0])
        least, shares = max(least, COARSE_NS, COARSE_SHARE * wall), SHARES[:1]
    found = [
        (candidate.level(s) - base.level(s), math.ceil(max(least, base.noise(s)) + apart * max(0, base.level(s))))
        for s in shares
    ]
    return max(found, key=lambda pair: pair[0] - pair[1])


def _handover(
    blocks: Sequence[Block], handovers: Mapping[str, Sequence[int]], device: str, resolution: int
) -> Tuple[int, int]:
    """Return the candidate's hand-over time beyond the baseline's, and its limit.

    The limit is at least the ``resolution``: calls that do the same may differ by as much, so hand-overs may too.
    """
    names = {block.role: block.contestant for block in blocks}
    base, candidate = (sorted(handovers.get(names[role], ())) for role in (Role.BASELINE, Role.CANDIDATE))
    if not base or not candidate:
        return 0, COARSE_NS
    level = _level(base, SHARES[0])
    least = COARSE_NS if not load_platform(device).IS_ACCELERATOR or len(base) < FEWEST else HANDOVER_NS
    limit = max(least, resolution, HANDOVER_SHARE * level, ClaimGaps((tuple(base),)).noise(SHARES[0]))
    return _level(candidate, SHARES[0]) - level, math.ceil(limit)


def _handover_contradiction(
    two_clocks: TwoClocks, blocks: Sequence[Block], handovers: Mapping[str, Sequence[int]], device: str
) -> str:
    _excess_ns, limit = _handover(blocks, handovers, device, two_clocks.resolution_ns)
    if two_clocks.handover_ns <= limit:
        return ""
    return f"hands over its outputs in {_us(two_clocks.handover_ns)} more than the baseline, {_us(limit)} are allowed"


def _replay_contradiction(blocks: Sequence[Block], device: str) -> str:
    """Check replayed calls likewise; their claims and walls are those of all calls of a sample together."""
    for regime in dict.fromkeys(block.regime for block in blocks if block.regime is not Regime.COLD):
        if not all(gaps_of(blocks, role, regime).blocks for role in (Role.BASELINE, Role.CANDIDATE)):
            continue
        unexplained, resolution = _excess(blocks, regime, device)
        if unexplained > resolution:
            claim = statistics.median(_candidates(blocks, regime, "device_ns"))
            return f"claims {_us(claim)} for the calls of a {regime.value} replay; {_us(unexplained)} are unexplained"
    return ""


def gaps_of(blocks: Sequence[Block], role: Role, regime: Regime) -> ClaimGaps:
    """Return the gaps of one side; for replays, those of all calls of a sample together."""
    chosen = [block for block in blocks if block.role is role and block.regime is regime]
    return ClaimGaps(tuple(_gaps(block) for block in chosen))


def _gaps(block: Block) -> Tuple[int, ...]:
    """Return the gap of each call except the first one, which includes the wake-up of its process."""
    found = tuple((wall - claim) * block.calls_per_sample for wall, claim in zip(block.wall_ns, block.device_ns))
    return found[1:] or found


def _candidates(blocks: Sequence[Block], regime: Regime, clock: str) -> List[int]:
    """Return the candidate's samples by ``device_ns`` or ``wall_ns``; for replays, of whole samples."""
    chosen = [block for block in blocks if block.role is Role.CANDIDATE and block.regime is regime]
    return [ns * block.calls_per_sample for block in chosen for ns in getattr(block, clock)]


def _level(ordered: Sequence[int], share: float) -> int:
    return ordered[int(share * len(ordered))]


def _us(nanoseconds: float) -> str:
    return f"{nanoseconds / 1e3:.1f} µs"
