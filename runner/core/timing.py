"""Timed calls: interleaved blocks, fresh inputs, random counts, every sample kept.

Warm-up, timed and checked calls are the same protocol with the same frames: fresh inputs arrive, outputs are poisoned,
one call runs, outputs are taken. How many of each there will be is drawn from the judge's secret.
"""

from __future__ import annotations

import math
import random
import statistics
import time
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from runner.core.checks import Judgement
from runner.core.messages import Block, ProtocolSpec
from runner.core.reference import Expected, Reference
from runner.core.side import Result, Side
from runner.core.steady import UNKNOWN, UNSTEADY, Watch
from runner.core.vocab import Mode, Role, Stage

JudgeOne = Callable[[Side, Expected, Sequence[Any]], Judgement]
"""Compares what the side's output buffer holds now; raises a finding when it is wrong."""


@dataclass
class Timing:
    """What a workload's timed phase left."""

    blocks: List[Block] = field(default_factory=list)
    warmup_calls: int = 0
    checked_calls: int = 0
    labels: List[str] = field(default_factory=list)


class InputSupply:
    """Inputs for timed calls: drawn anew each time, or one of a rotating set, at random."""

    def __init__(self, reference: Reference, protocol: ProtocolSpec, dice: random.Random) -> None:
        self._reference = reference
        self._dice = dice
        self._drawn = 0
        self._rotation: List[List[Any]] = []
        if protocol.inputs == "rotating":
            self._rotation = [reference.draw(Mode.STANDARD, "rotation", i) for i in range(protocol.rotation)]

    def next(self) -> List[Any]:
        """Inputs for one call."""
        if self._rotation:
            return self._dice.choice(self._rotation)
        self._drawn += 1
        return self._reference.draw(Mode.STANDARD, "timed", self._drawn)


class Timer:
    """Runs the timed phase of one workload over both sides."""

    def __init__(
        self,
        reference: Reference,
        sides: Dict[Role, Side],
        protocol: ProtocolSpec,
        dice: random.Random,
        judge_one: JudgeOne,
        *,
        watch: Optional[Watch] = None,
        warmed_up: Callable[[], None] = lambda: None,
    ) -> None:
        """Without a ``watch`` the device is warm after the calls asked for; then ``warmed_up`` is called."""
        self._protocol = protocol
        self._sides = sides
        self._dice = dice
        self._judge_one = judge_one
        self._watch = watch
        self._warmed_up = warmed_up
        self._reference = reference
        self._supply = InputSupply(reference, protocol, dice)
        self._expected: Optional[Expected] = None
        self.timing = Timing()

    def run(self) -> Timing:
        """Warm up, then blocks in the order A B B A until precise enough, or the budget is spent.

        Past the budget each block still gets one call, so that slow candidates are timed too, evenly interleaved.

        :raises Finding: when a checked call is wrong or a side fails.
        """
        self._warm_up(time.monotonic() + self._protocol.budget_s)
        self._warmed_up()
        deadline = time.monotonic() + self._protocol.budget_s
        while True:
            first, second = self._dice.sample([Role.BASELINE, Role.CANDIDATE], 2)
            for role in (first, second, second, first):
                self._block(role, deadline)
            enough = self._samples() >= self._protocol.min_samples
            if enough and (self._precise() or self._samples() >= self._protocol.max_samples):
                return self.timing
            if time.monotonic() > deadline:
                self.timing.labels.append("budget_reached" if enough else "too_few_samples")
                return self.timing

    def _warm_up(self, deadline: float) -> None:
        """The calls asked for, and further ones until the device is steady."""
        if self._watch is not None:
            self._watch.start()
        for _ in range(self._protocol.warmup_calls + self._dice.randrange(4)):
            self._warm_up_once()
            if time.monotonic() > deadline:
                break
        if self._watch is not None:
            self._steady(self._watch, min(deadline, time.monotonic() + self._protocol.steady_cap_s))

    def _steady(self, watch: Watch, deadline: float) -> None:
        while not watch.steady():
            if watch.blind or time.monotonic() > deadline:
                self.timing.labels.append(UNKNOWN if watch.blind else UNSTEADY)
                return
            self._warm_up_once()

    def _warm_up_once(self) -> None:
        for side in self._sides.values():
            self._one_call(side)
            if self._watch is not None:
                self._watch.steady()
        self.timing.warmup_calls += 1

    def _block(self, role: Role, deadline: float) -> None:
        calls = max(1, self._protocol.block_calls + self._dice.randrange(-2, 3))
        started = time.monotonic_ns()
        results = [self._one_call(self._sides[role])]
        while len(results) < calls and time.monotonic() <= deadline:
            results.append(self._one_call(self._sides[role]))
        block = Block(
            role=role,
            index=len(self.timing.blocks),
            started_ns=started,
            ended_ns=time.monotonic_ns(),
            device_ns=tuple(r.device_ns for r in results),
            wall_ns=tuple(r.wall_ns for r in results),
        )
        self.timing.blocks.append(block)

    def _one_call(self, side: Side) -> Result:
        inputs = self._supply.next()
        # The first call of a layout needs the reference's output shapes; later ones only when they are checked.
        check = self._dice.random() < self._protocol.check_share
        if self._expected is None or check:
            self._expected = self._reference.expect(inputs)
        sent = side.deliver(inputs, self._expected)
        result = side.call(stage=Stage.TIME)
        if check:
            self._judge_one(side, self._expected, (result, sent))
            self.timing.checked_calls += side.role is Role.CANDIDATE
        return result

    def _samples(self) -> int:
        return min(len(samples_of(self.timing.blocks, role)) for role in self._sides)

    def _precise(self) -> bool:
        widths = [relative_half_width(samples_of(self.timing.blocks, role)) for role in self._sides]
        return max(widths) <= self._protocol.target_half_width


def samples_of(blocks: Sequence[Block], role: Role, clock: str = "device_ns") -> List[int]:
    """All samples of one side, nanoseconds, in order; ``clock`` is ``device_ns`` or ``wall_ns``."""
    return [sample for block in blocks if block.role is role for sample in getattr(block, clock)]


def relative_half_width(samples: Sequence[int]) -> float:
    """Half the width of the median's distribution-free 95 % interval, as a share of the median.

    The interval is between the order statistics around ``n/2 ± 0.98 √n`` (binomial, normal approximation), rounded
    outwards; it covers the noise within this session only.
    """
    if len(samples) < 8:
        return float("inf")
    ordered = sorted(samples)
    reach = 0.98 * len(ordered) ** 0.5
    low = max(0, math.floor(len(ordered) / 2 - reach) - 1)
    high = len(ordered) - 1 - low
    middle = statistics.median(ordered)
    return (ordered[high] - ordered[low]) / 2 / middle if middle else 0.0


def clocks_disagree(blocks: Sequence[Block], overhead_ns: int) -> Tuple[bool, str]:
    """Whether the candidate's claimed device times contradict the judge's clock, and in which words.

    A claim may not be longer than the call took. Nor may more than half of the candidate's calls, and more than a
    millisecond, go unexplained by their claims, the protocol's overhead and what the baseline leaves unexplained too.
    The least disturbed quarter of its calls decides: a busy host delays many calls, hidden work is in all of them.
    """
    claims, walls = (samples_of(blocks, Role.CANDIDATE, clock) for clock in ("device_ns", "wall_ns"))
    base_claims, base_walls = (samples_of(blocks, Role.BASELINE, clock) for clock in ("device_ns", "wall_ns"))
    claim, wall = statistics.median(claims), statistics.median(walls)
    if claim > wall * 1.05 + 20_000:
        return True, f"claims {claim / 1e3:.1f} µs in a call that took {wall / 1e3:.1f} µs"
    common = max(overhead_ns, statistics.median(base_walls) - statistics.median(base_claims))
    unexplained = _lower_quartile([w - c for w, c in zip(walls, claims)]) - common
    if unexplained > max(1_000_000, _lower_quartile(walls) / 2):
        return True, f"claims {claim / 1e3:.1f} µs of {wall / 1e3:.1f} µs; {unexplained / 1e3:.1f} µs are unexplained"
    return False, ""


def _lower_quartile(values: Sequence[int]) -> int:
    return sorted(values)[len(values) // 4]
