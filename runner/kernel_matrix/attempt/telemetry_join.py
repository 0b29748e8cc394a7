"""Joining the host's telemetry of a GPU to the blocks that a judge timed.

Judge and host read the same clock, ``CLOCK_MONOTONIC``, so their times can be compared directly. If a block of a
report lies outside the session as the host timed it, the clocks differ or the report is not honest. Then nothing is
joined, and the summary gives the reason.

Two consecutive snapshots bound an interval. It is *throttled* if either one shows a reason to slow down, or if a
reason's counter grew between them, and *contended* if either one shows a foreign process. An interval affects every
block that it overlaps, and a block is discarded as a whole, since the host does not know when each call began.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import fmean, median
from typing import TypeVar

from kernel_matrix.lease import DeviceSnapshot
from kernel_matrix.model.enums import Regime, Status
from kernel_matrix.model.messages import BatchBlock, Block, EnergyReading, SessionReport, WorkloadReport
from kernel_matrix.platforms import AILING, THROTTLING, EventReason, TelemetrySample
from kernel_matrix.results.record import FieldSpread, TelemetrySummary

_LONGEST_GAP_NS = 1_000_000_000  # a block with a longer gap between two snapshots has no telemetry
_NEAREST_NS = 100_000_000  # for a block without a snapshot inside, the nearest one is used up to this distance
_NAMED_PIDS = 8

_Timed = Block | BatchBlock  # calls of one contestant in a row, single or in batches
_Kind = TypeVar("_Kind", Block, BatchBlock)

YES = "yes"  # a summary's ``joined`` if telemetry was joined

_KINDS = (AILING, THROTTLING - AILING)  # reasons that are judged together, the more serious first
_FIELDS = (
    "sm_clock_mhz",
    "mem_clock_mhz",
    "power_w",
    "power_average_w",
    "temperature_c",
    "utilization_percent",
    "memory_used_bytes",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedSession:
    """A session as the host timed it, and its judge's report, if there is one."""

    report: SessionReport | None
    started_ns: int
    """``time.monotonic_ns()`` before it began, when none of its processes was on the device."""
    ended_ns: int
    """``time.monotonic_ns()`` after the last process was gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedReports:
    """Reports with telemetry per block, and conclusions from it."""

    reports: tuple[SessionReport, ...]
    summary: TelemetrySummary
    under_load: tuple[Mapping[str, FieldSpread], ...] = ()
    """Per report, field → spread over its timed blocks; empty if there is no telemetry for them."""
    throttled: frozenset[EventReason] = frozenset()
    """Reasons why too many samples of a workload were taken while the GPU slowed down; empty if there were none."""


def join(
    snapshots: Sequence[DeviceSnapshot], seen: Sequence[ObservedSession], *, exclusive: bool, trace: str | None
) -> JoinedReports:
    """Join the snapshots of all sessions to the blocks of their reports.

    If ``exclusive``, samples that were taken beside foreign processes are discarded. ``trace`` is the file name of the
    whole trace.
    """
    usable = [snapshot for snapshot in snapshots if not snapshot.trouble]
    reports = tuple(session.report for session in seen if session.report is not None)
    why_not = _why_not(usable, seen)
    if why_not:
        summary = _summary(usable, seen, [], {}, joined=why_not, trace=trace)
        return JoinedReports(reports=reports, summary=summary, under_load=tuple({} for _ in reports))
    joiner = _Joiner(usable, exclusive=exclusive)
    pairs = [joiner.session(report) for report in reports]
    timed = [sample for _, samples in pairs for sample in samples]
    return JoinedReports(
        reports=tuple(report for report, _ in pairs),
        summary=_summary(usable, seen, timed, joiner.discarded, joined=YES, trace=trace),
        under_load=tuple(_spreads(samples) for _, samples in pairs),
        throttled=frozenset(joiner.throttled),
    )


def _why_not(snapshots: Sequence[DeviceSnapshot], seen: Sequence[ObservedSession]) -> str:
    """Return the reason why snapshots and blocks cannot be joined; empty if they can."""
    if not snapshots:
        return "the driver never answered"
    for session in seen:
        for block in _blocks(session.report):
            if not session.started_ns <= block.started_ns <= block.ended_ns <= session.ended_ns:
                return f"{_described(block)} of a session lies outside that session by this host's clock"
    return ""


def _blocks(report: SessionReport | None) -> Iterable[_Timed]:
    for workload in report.workloads if report is not None else ():
        yield from workload.blocks
        yield from workload.batches


def _described(block: _Timed) -> str:
    return "a block of batches" if isinstance(block, BatchBlock) else f"block {block.index}"


@dataclass(frozen=True, slots=True)
class _BlockObservation:
    """Telemetry of one block."""

    samples: tuple[TelemetrySample, ...]
    """Samples inside the block, or the nearest one; empty if there is none near."""
    throttling: frozenset[EventReason]
    foreign: tuple[int, ...]


class _Joiner:
    """Joins block by block, and counts discarded samples."""

    def __init__(self, snapshots: Sequence[DeviceSnapshot], *, exclusive: bool) -> None:
        self._snapshots = snapshots
        self._times = [snapshot.sample.at_ns for snapshot in snapshots]
        self._exclusive = exclusive
        self.discarded: Counter[str] = Counter()
        self.throttled: set[EventReason] = set()

    def session(self, report: SessionReport) -> tuple[SessionReport, list[TelemetrySample]]:
        """Return ``report`` with telemetry per block, and all samples inside cold blocks and batches, each once."""
        samples: dict[int, TelemetrySample] = {}
        joined = tuple(self._workload(workload, samples) for workload in report.workloads)
        return replace(report, workloads=joined), list(samples.values())

    def _workload(self, workload: WorkloadReport, samples: dict[int, TelemetrySample]) -> WorkloadReport:
        """Return ``workload`` with telemetry; add the samples inside its cold blocks and batches.

        A record's clocks and power belong to the calls that its speed-ups come from.
        """
        return replace(
            workload,
            blocks=self._mark_all(workload.blocks, samples),
            batches=self._mark_all(workload.batches, samples),
            energies=tuple(map(self._mark_energy, workload.energies)),
        )

    def _mark_energy(self, reading: EnergyReading) -> EnergyReading:
        """Return ``reading`` with the cause for which it does not count: somebody else's work took energy, too."""
        foreign = _foreign(self._around(reading)) if self._exclusive else ()
        return replace(reading, discarded=_contended(foreign) or None)

    def _mark_all(self, blocks: Sequence[_Kind], samples: dict[int, TelemetrySample]) -> tuple[_Kind, ...]:
        seen = [self._observe(block) for block in blocks]
        causes, throttled = _causes(blocks, seen, exclusive=self._exclusive)
        self.throttled |= throttled
        for block, found, cause in zip(blocks, seen, causes, strict=True):
            if cause:
                self.discarded[cause] += len(block.wall_ns)
            if _is_cold(block):
                samples |= {sample.at_ns: sample for sample in found.samples}
        return tuple(_mark(*marked) for marked in zip(blocks, seen, causes, strict=True))

    def _observe(self, block: _Timed) -> _BlockObservation:
        around = self._around(block)
        return _BlockObservation(
            samples=() if _longest_stretch(block, around) > _LONGEST_GAP_NS else _within(block, around),
            throttling=_throttling(around),
            foreign=_foreign(around),
        )

    def _around(self, block: _Timed | EnergyReading) -> Sequence[DeviceSnapshot]:
        """Return the snapshots from the last one before ``block`` to the first one after it."""
        first = bisect_right(self._times, block.started_ns) - 1
        last = bisect_left(self._times, block.ended_ns)
        return self._snapshots[max(first, 0) : last + 1]


def _longest_stretch(block: _Timed, around: Sequence[DeviceSnapshot]) -> int:
    """Return the longest time around ``block`` without a snapshot, nanoseconds."""
    times = [snapshot.sample.at_ns for snapshot in around]
    points = [min(block.started_ns, *times), *times, max(block.ended_ns, *times)]
    return max(after - before for before, after in pairwise(points))


def _within(block: _Timed, around: Sequence[DeviceSnapshot]) -> tuple[TelemetrySample, ...]:
    """Return the samples taken while ``block`` ran; if there are none, the nearest one if it is near enough."""
    samples = [snapshot.sample for snapshot in around]
    inside = tuple(sample for sample in samples if block.started_ns <= sample.at_ns <= block.ended_ns)
    if inside:
        return inside

    def distance(sample: TelemetrySample) -> int:
        return max(block.started_ns - sample.at_ns, sample.at_ns - block.ended_ns)

    nearest = min(samples, key=distance)
    return (nearest,) if distance(nearest) <= _NEAREST_NS else ()


def _throttling(around: Sequence[DeviceSnapshot]) -> frozenset[EventReason]:
    shown = {reason for snapshot in around for reason in snapshot.sample.reasons or ()}
    first, last = around[0].sample.reason_ns, around[-1].sample.reason_ns
    counted = {reason for reason, spent in last.items() if spent > first.get(reason, spent)}
    return THROTTLING & (shown | counted)


def _is_cold(block: _Timed) -> bool:
    return isinstance(block, BatchBlock) or block.regime is Regime.COLD


def _causes(
    blocks: Sequence[_Timed], seen: Sequence[_BlockObservation], *, exclusive: bool
) -> tuple[list[str], set[EventReason]]:
    """Return per block why it is discarded, empty if it is not, and why the workload is throttled.

    Contended blocks are always discarded. Throttled cold blocks are discarded as long as half of each contestant's
    uncontended samples remain. Otherwise all of them count, and the workload is throttled. In the other regimes,
    slowing down under load is part of what is measured.
    """
    cold = [_is_cold(block) for block in blocks]
    causes = [_contended(found.foreign) if exclusive else "" for found in seen]
    uncontended = _samples(blocks, [not cause for cause in causes])
    throttled: set[EventReason] = set()
    for kind in _KINDS:
        triples = zip(cold, causes, seen, strict=True)
        hit = [is_cold and not cause and bool(kind & found.throttling) for is_cold, cause, found in triples]
        remaining = _samples(blocks, [not cause and not bad for cause, bad in zip(causes, hit, strict=True)])
        if all(2 * remaining[name] >= uncontended[name] for name in uncontended):
            told = zip(causes, hit, seen, strict=True)
            slow = Status.THROTTLED.value
            causes = [
                f"{slow}: {','.join(names_of(kind & found.throttling))}" if bad else cause for cause, bad, found in told
            ]
        else:
            throttled |= {
                reason for bad, found in zip(hit, seen, strict=True) if bad for reason in kind & found.throttling
            }
    return causes, throttled


def _foreign(around: Sequence[DeviceSnapshot]) -> tuple[int, ...]:
    return tuple(sorted({pid for snapshot in around for pid in snapshot.foreign}))


def _contended(foreign: Sequence[int]) -> str:
    if not foreign:
        return ""
    more = len(foreign) - _NAMED_PIDS
    pids = ",".join(map(str, foreign[:_NAMED_PIDS])) + (f" and {more} more" if more > 0 else "")
    return f"{Status.CONTENDED.value}: pid {pids}"


def names_of(reasons: Iterable[EventReason]) -> list[str]:
    """Return the names of ``reasons``, in the order of their definition."""
    named = set(reasons)
    return [reason.value for reason in EventReason if reason in named]


def _samples(blocks: Sequence[_Timed], counts: Sequence[bool]) -> Counter[str]:
    """Count the samples per contestant in those cold blocks that count."""
    found: Counter[str] = Counter()
    for block, does in zip(blocks, counts, strict=True):
        if _is_cold(block):
            name = block.contestant or (block.role.value if isinstance(block, Block) else "")
            found[name] += len(block.wall_ns) if does else 0
    return found


def _mark(block: _Kind, found: _BlockObservation, cause: str) -> _Kind:
    if isinstance(block, BatchBlock):
        return replace(block, discarded=cause or None, sm_clock_mhz=_mean(found.samples, "sm_clock_mhz"))
    return replace(
        block,
        discarded=tuple((index, cause) for index in range(len(block.device_ns))) if cause else (),
        sm_clock_mhz=_mean(found.samples, "sm_clock_mhz"),
        mem_clock_mhz=_mean(found.samples, "mem_clock_mhz"),
        power_w=_mean(found.samples, "power_w"),
        temperature_c=_mean(found.samples, "temperature_c"),
    )


def _values(samples: Iterable[TelemetrySample], field: str) -> list[float]:
    return [value for sample in samples if (value := getattr(sample, field)) is not None]


def _mean(samples: Sequence[TelemetrySample], field: str) -> float | None:
    values = _values(samples, field)
    return fmean(values) if values else None


def _spreads(samples: Sequence[TelemetrySample]) -> dict[str, FieldSpread]:
    answered = {field: _values(samples, field) for field in _FIELDS}
    return {
        field: FieldSpread(low=min(values), median=median(values), high=max(values))
        for field, values in answered.items()
        if values
    }


def _summary(
    snapshots: Sequence[DeviceSnapshot],
    seen: Sequence[ObservedSession],
    timed: Sequence[TelemetrySample],
    discarded: Mapping[str, int],
    *,
    joined: str,
    trace: str | None,
) -> TelemetrySummary:
    chosen = [
        snapshot
        for snapshot in snapshots
        if not seen or seen[0].started_ns <= snapshot.sample.at_ns <= seen[-1].ended_ns
    ]
    samples = [snapshot.sample for snapshot in chosen]
    times = [sample.at_ns for sample in samples]
    gaps = [(after - before) / 1e9 for before, after in pairwise(times)]
    return TelemetrySummary(
        samples=len(samples),
        interval_s=median(gaps) if gaps else None,
        longest_gap_s=max(gaps) if gaps else None,
        spread=_spreads(timed or samples),
        energy_j=_energy_j(samples),
        reasons=_shares(samples),
        reason_s=_counted_s(samples),
        own_pids=tuple(sorted({pid for snapshot in chosen for pid in snapshot.own})),
        discarded=dict(discarded),
        joined=joined,
        trace=trace,
    )


def _energy_j(samples: Sequence[TelemetrySample]) -> float | None:
    """Return the energy from the first to the last sample; None if there is no counter, or if it was reset."""
    read = [sample.energy_mj for sample in samples if sample.energy_mj is not None]
    return (read[-1] - read[0]) / 1000 if len(read) > 1 and read[-1] >= read[0] else None


def _shares(samples: Sequence[TelemetrySample]) -> dict[str, float]:
    answered = [sample.reasons for sample in samples if sample.reasons is not None]
    counts = Counter(reason for reasons in answered for reason in reasons)
    return {reason.value: counts[reason] / len(answered) for reason in EventReason if reason in counts}


def _counted_s(samples: Sequence[TelemetrySample]) -> dict[str, float]:
    counted = [sample.reason_ns for sample in samples if sample.reason_ns]
    if not counted:
        return {}
    first, last = counted[0], counted[-1]
    both = first.keys() & last.keys()
    return {reason.value: max(0, last[reason] - first[reason]) / 1e9 for reason in EventReason if reason in both}
