"""The timed calls of one workload in one session, sorted by whose they are and in which regime they ran."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import sub
from statistics import median
from typing import Any

from kernel_matrix.model.enums import Implementation, Regime, Role
from kernel_matrix.model.messages import Block, WorkloadReport

CANDIDATE = Role.CANDIDATE.value
EAGER = Implementation.EAGER.value
COLD = Regime.COLD.value

_NAMES = {Role.CANDIDATE.value: CANDIDATE, Role.BASELINE.value: EAGER}
"""Contestants of records from before there were several of a role."""


@dataclass(frozen=True, slots=True)
class TimedBlock:
    """A run of calls of one contestant; times in nanoseconds, only of samples that count."""

    contestant: str
    """``candidate`` or an implementation's name."""
    regime: str
    device_ns: Sequence[int]
    wall_ns: Sequence[int]


class WorkloadTimes:
    """All blocks of one workload in one session. Every time is in nanoseconds."""

    def __init__(self, blocks: Iterable[TimedBlock]) -> None:
        self._blocks: dict[tuple[str, str], list[TimedBlock]] = {}
        for block in blocks:
            self._blocks.setdefault((block.contestant, block.regime), []).append(block)
        self._device_ns: dict[tuple[str, str], list[int]] = {}
        self._medians: dict[tuple[str, str], float | None] = {}

    @classmethod
    def of_report(cls, workload: WorkloadReport) -> WorkloadTimes:
        """What a judge reports of a workload."""
        return cls(map(_from_block, workload.blocks))

    @classmethod
    def of_document(cls, workload: Mapping[str, Any]) -> WorkloadTimes:
        """What a checked record's document says of a workload."""
        return cls(map(_from_mapping, workload["blocks"]))

    def device_ns(self, contestant: str, regime: str = COLD) -> Sequence[int]:
        """The device's time of each call, as the contestant's side claims it."""
        key = (contestant, regime)
        if key not in self._blocks:
            return ()
        if key not in self._device_ns:
            self._device_ns[key] = list(chain.from_iterable(block.device_ns for block in self._blocks[key]))
        return self._device_ns[key]

    def wall_ns(self, contestant: str, regime: str = COLD) -> Sequence[int]:
        """The judge's time around each call."""
        return list(chain.from_iterable(block.wall_ns for block in self._blocks.get((contestant, regime), ())))

    def median_ns(self, contestant: str, regime: str = COLD) -> float | None:
        """Median device time; null where nothing was timed, or nothing counts."""
        key = (contestant, regime)
        if key not in self._medians:
            samples = self.device_ns(contestant, regime)
            self._medians[key] = median(samples) if samples else None
        return self._medians[key]

    def speedup(self, against: str = EAGER) -> float | None:
        """Cold median of ``against`` ÷ the candidate's; null where either has none."""
        ours, theirs = self.median_ns(CANDIDATE), self.median_ns(against)
        return theirs / ours if ours and theirs else None

    def paired_speedups(self) -> list[float]:
        """The speed-up over eager of each pair of cold blocks, the candidate's and the one it was interleaved with."""
        ours, theirs = self._blocks.get((CANDIDATE, COLD), ()), self._blocks.get((EAGER, COLD), ())
        pairs = [
            (median(a.device_ns), median(b.device_ns))
            for a, b in zip(ours, theirs, strict=False)
            if a.device_ns and b.device_ns
        ]
        return [b / a for a, b in pairs if a and b]


def contestant_of(block: Mapping[str, Any]) -> str:
    """Whose calls the block of a record's document holds."""
    return block.get("contestant") or _NAMES[block["role"]]


def grain_ns(samples: Iterable[int]) -> int:
    """The smallest step between two of ``samples``: the tick of the clock they were taken with, or more.

    0 where all are equal, or there are none.
    """
    ordered = sorted(set(samples))
    return min(map(sub, ordered[1:], ordered), default=0)


def _from_block(block: Block) -> TimedBlock:
    name, gone = block.contestant or _NAMES[block.role.value], block.discarded
    return TimedBlock(name, block.regime.value, _kept(block.device_ns, gone), _kept(block.wall_ns, gone))


def _from_mapping(block: Mapping[str, Any]) -> TimedBlock:
    regime, gone = block.get("regime", COLD), block["discarded"]
    return TimedBlock(contestant_of(block), regime, _kept(block["device_ns"], gone), _kept(block["wall_ns"], gone))


def _kept(times: Sequence[int], discarded: Sequence[Sequence[Any]]) -> Sequence[int]:
    if not discarded:
        return times
    gone = {index for index, _cause in discarded}
    return [time_ns for index, time_ns in enumerate(times) if index not in gone]
