"""The timed calls of one workload in one session, by contestant and regime."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from operator import sub
from statistics import median
from typing import Any, NamedTuple

from kernel_matrix.inside.batch_times import MedianInterval, call_times, median_interval
from kernel_matrix.model.enums import Implementation, Regime, Role
from kernel_matrix.model.messages import BatchBlock, Block, WorkloadReport, from_json

CANDIDATE = Role.CANDIDATE.value
EAGER = Implementation.EAGER.value
COLD = Regime.COLD.value

_NAMES = {Role.CANDIDATE.value: CANDIDATE, Role.BASELINE.value: EAGER}
"""Role → contestant, for older records, which name only the role."""


class TimedBlock(NamedTuple):
    """A run of calls of one contestant: times of the samples that were not discarded, in nanoseconds."""

    contestant: str
    """``candidate`` or an implementation's name."""
    regime: str
    device_ns: Sequence[int]
    wall_ns: Sequence[int]


class WorkloadTimes:
    """All blocks of one workload in one session; every time is in nanoseconds.

    The time of a call is taken in batches, by the judge's own clock, where candidate and eager have them. Elsewhere it
    is the median of the claimed device times, and a speed-up is limited by the bound.

    Attributes:
        counts: Whether the session has a time and a speed-up, beside what was claimed.
    """

    def __init__(
        self, blocks: Iterable[TimedBlock], bound_ns: int | None = None, batches: Sequence[BatchBlock] = ()
    ) -> None:
        """Group blocks by contestant and regime.

        Args:
            blocks: Single and replayed calls.
            bound_ns: The longest that the candidate's calls can have taken, if known.
            batches: Batches of calls.
        """
        self._bound_ns = bound_ns
        self._batches = batches
        self._kept_batches = [block for block in batches if not block.discarded]
        self._blocks: dict[tuple[str, str], list[TimedBlock]] = {}
        for block in blocks:
            self._blocks.setdefault((block.contestant, block.regime), []).append(block)
        self._device_ns: dict[tuple[str, str], list[int]] = {}
        self._medians: dict[tuple[str, str], float | None] = {}
        self._batch_times: dict[str, Sequence[float]] = {}
        self._batch_medians: dict[str, MedianInterval | None] = {}
        self._in_batches: dict[str, bool] = {}
        self.counts = True

    @classmethod
    def of_report(cls, workload: WorkloadReport) -> WorkloadTimes:
        """Read the blocks of a judge's report."""
        clocks = workload.two_clocks
        bound_ns = clocks.bound_ns if clocks is not None else None
        return cls(map(_from_block, workload.blocks), bound_ns, workload.batches)

    @classmethod
    def of_document(cls, workload: Mapping[str, Any]) -> WorkloadTimes:
        """Read the blocks of a workload in a checked record's document."""
        clocks = workload.get("two_clocks") or {}
        batches = [from_json(BatchBlock, block) for block in workload.get("batches", ())]
        return cls(map(_from_mapping, workload["blocks"]), clocks.get("bound_ns"), batches)

    def device_ns(self, contestant: str, regime: str = COLD) -> Sequence[int]:
        """Return the device time of each call, as the contestant's worker claims it, in ascending order."""
        key = (contestant, regime)
        if key not in self._blocks:
            return ()
        if key not in self._device_ns:
            # Sorted once: medians, quartiles and ticks all sort, which costs little for sorted numbers.
            self._device_ns[key] = sorted(chain.from_iterable(block.device_ns for block in self._blocks[key]))
        return self._device_ns[key]

    def wall_ns(self, contestant: str, regime: str = COLD) -> Sequence[int]:
        """Return the time of each call by the judge's clock."""
        return list(chain.from_iterable(block.wall_ns for block in self._blocks.get((contestant, regime), ())))

    def claimed_ns(self, contestant: str, regime: str = COLD) -> float | None:
        """Return the median of the claimed device times; None where no sample counts."""
        key = (contestant, regime)
        if key not in self._medians:
            samples = self.device_ns(contestant, regime)
            self._medians[key] = median(samples) if samples else None
        return self._medians[key]

    def time_ns(self, contestant: str) -> float | None:
        """Return the median time of a cold call, in batches where these compare eager and this contestant.

        Elsewhere it is the claimed one. None where the session does not count.
        """
        if not self.counts:
            return None
        found = self.batches(contestant) if self._is_timed_in_batches(contestant) else None
        return found.estimate if found else self.claimed_ns(contestant)

    def samples_ns(self, contestant: str) -> Sequence[float]:
        """Return the times of which :meth:`time_ns` is the median."""
        if not self.counts:
            return ()
        timed_in_batches = self._is_timed_in_batches(contestant)
        return self._call_times(contestant) if timed_in_batches else self.device_ns(contestant)

    def batches(self, contestant: str) -> MedianInterval | None:
        """Return the time of one call in batches by the judge's clock alone; None where there are none."""
        if contestant not in self._batch_medians:
            times = self._call_times(contestant)
            self._batch_medians[contestant] = median_interval(times) if times else None
        return self._batch_medians[contestant]

    def times_in_batches(self) -> list[list[float]]:
        """Return the times per call of which :meth:`time_ns` is the median, for each block of batches.

        None are of blocks of short or discarded batches, and of contestants that are timed otherwise.
        """
        times: dict[str, Iterator[float]] = {}
        found: list[list[float]] = []
        for block in self._batches:
            name = block.contestant
            is_kept = not block.short and not block.discarded
            if not (self.counts and is_kept and self._is_timed_in_batches(name)):
                found.append([])
                continue
            if name not in times:
                times[name] = iter(self._call_times(name))
            found.append(list(islice(times[name], len(block.calls))))
        return found

    def in_batches(self, against: str = EAGER) -> bool:
        """Return True if batches compare the candidate with ``against``.

        Both sides' times need an interval, and the outputs of both must lie in the judge's memory, or of neither: else
        one side's time holds copies of outputs, and the other's does not.
        """
        if against not in self._in_batches:
            sides = (CANDIDATE, against)
            known = all((found := self.batches(name)) and math.isfinite(found.high) and found.low > 0 for name in sides)
            in_place = {block.in_place for block in self._kept_batches if block.contestant in sides}
            self._in_batches[against] = known and len(in_place) == 1
        return self._in_batches[against]

    def speedup(self, against: str = EAGER) -> float | None:
        """Compute the time of ``against`` ÷ the candidate's, at most what the judge's own clock allows.

        Returns:
            The ratio of the times in batches, if :meth:`in_batches`. Else that of the claimed times, at most
            :meth:`speedup_limit`. None where either has no time, or the session does not count.
        """
        if not self.counts:
            return None
        if self.in_batches(against):
            ours, theirs = self.batches(CANDIDATE), self.batches(against)
            return theirs.estimate / ours.estimate if ours and theirs else None
        claimed, limit = self._claimed_speedup(against), self.speedup_limit(against)
        return claimed if claimed is None or limit is None else min(claimed, limit)

    def speedup_limit(self, against: str = EAGER) -> float | None:
        """Compute the largest speed-up that the judge's own clock allows; None where it does not say.

        It is the ratio of the times in batches, from the far ends of their intervals. Without batches it is the time of
        ``against`` ÷ the candidate's bound, or 1 if that is less: the bound is a longest time, so it shows no candidate
        to be slow.
        """
        ours, theirs = self.batches(CANDIDATE), self.batches(against)
        if ours is None or theirs is None:
            bounded = self.bounded_speedup(against)
            return None if bounded is None else max(1.0, bounded)
        return theirs.high / ours.low if min(ours.low, theirs.high) > 0 else None

    def bounded_speedup(self, against: str = EAGER) -> float | None:
        """Compute the time of ``against`` by the bound's clock ÷ the candidate's bound; None without a bound."""
        batches = self.batches(against)
        theirs = batches.estimate if batches else self.claimed_ns(against)
        return theirs / self._bound_ns if theirs and self._bound_ns else None

    def paired_speedups(self) -> list[float]:
        """Compute the speed-up over eager of each pair of interleaved cold blocks, limited like that of the session."""
        if self.in_batches():
            pairs = zip(self._block_times(CANDIDATE), self._block_times(EAGER), strict=False)
            return [b / a for a, b in pairs if min(a, b) > 0]
        claimed, limited = self._claimed_speedup(EAGER), self.speedup()
        if not claimed or not limited:
            return []
        ours, theirs = self._blocks.get((CANDIDATE, COLD), ()), self._blocks.get((EAGER, COLD), ())
        medians = [
            (median(a.device_ns), median(b.device_ns))
            for a, b in zip(ours, theirs, strict=False)
            if a.device_ns and b.device_ns
        ]
        limit = limited / claimed
        return [b / a * limit for a, b in medians if a and b]

    def _is_timed_in_batches(self, contestant: str) -> bool:
        return self.in_batches(EAGER) and self.in_batches(contestant)

    def _block_times(self, contestant: str) -> list[float]:
        """Return the median time per call of each block of long batches; 0 for a block that does not count."""
        by_block = zip(self._batches, self.times_in_batches(), strict=True)
        own = (times for block, times in by_block if block.contestant == contestant and not block.short)
        return [median(times) if times else 0.0 for times in own]

    def _call_times(self, contestant: str) -> Sequence[float]:
        if not self._kept_batches:
            return ()
        if contestant not in self._batch_times:
            self._batch_times[contestant] = call_times(self._kept_batches, contestant, EAGER)
        return self._batch_times[contestant]

    def _claimed_speedup(self, against: str) -> float | None:
        ours, theirs = self.claimed_ns(CANDIDATE), self.claimed_ns(against)
        return theirs / ours if ours and theirs else None


def contestant_of(block: Mapping[str, Any]) -> str:
    """Return the contestant whose calls a block of a record's document holds."""
    return block.get("contestant") or _NAMES[block["role"]]


def grain_ns(samples: Iterable[int]) -> int:
    """Return the smallest step between two samples: an upper bound of the clock's tick. 0 if all are equal."""
    ordered = sorted(samples)
    return min(filter(None, map(sub, ordered[1:], ordered)), default=0)


def _from_block(block: Block) -> TimedBlock:
    name, discarded = block.contestant or _NAMES[block.role.value], block.discarded
    return TimedBlock(name, block.regime.value, _kept(block.device_ns, discarded), _kept(block.wall_ns, discarded))


def _from_mapping(block: Mapping[str, Any]) -> TimedBlock:
    name, regime, discarded = contestant_of(block), block.get("regime", COLD), block["discarded"]
    return TimedBlock(name, regime, _kept(block["device_ns"], discarded), _kept(block["wall_ns"], discarded))


def _kept(times: Sequence[int], discarded: Sequence[Sequence[Any]]) -> Sequence[int]:
    if not discarded:
        return times
    left_out = {index for index, _cause in discarded}
    return [time_ns for index, time_ns in enumerate(times) if index not in left_out]
