"""Checks that ask what was measured on the device: memory, cache, timers and rates."""

from __future__ import annotations

from collections.abc import Iterator

from kernel_matrix.conformance import ConformanceCheck, decide
from kernel_matrix.conformance.findings import PlatformFindings
from kernel_matrix.inside.device_measurements import DeviceMeasurements

_LINEAR = 0.05
"""Twice the copies take twice as long, within this share."""
_AGREE = 0.05
"""The device's timer and the host's clock agree on some milliseconds of work, within this share."""
_READING_ERROR = 1.02
"""Measured rates may exceed a data sheet's by this factor: its numbers are rounded."""
_NO_TRANSPORT = "none"


def check_memory(findings: PlatformFindings) -> Iterator[ConformanceCheck]:
    """Check the transport, each arena, the memory after each cell, and the flush of the cache."""
    names = {session.transport for record in findings.records.values() for session in record.sessions}
    yield decide(
        "transport", ", ".join(sorted(names)) or "no session", holds=bool(names) and _NO_TRANSPORT not in names
    )
    measured = findings.measured
    if isinstance(measured, DeviceMeasurements):
        yield from _arenas(measured)
    else:
        yield decide("arenas", measured, holds=False)
    yield _memory_back(findings)
    yield from _flush(findings)


def check_timing(findings: PlatformFindings) -> Iterator[ConformanceCheck]:
    """Check that time grows with work, that clocks agree, and that no rate is beyond the data sheet's."""
    measured = findings.measured
    if not isinstance(measured, DeviceMeasurements):
        yield decide("measured", measured, holds=False)
        return
    yield _linear(measured, is_accelerator=findings.is_accelerator)
    yield _clocks_agree(measured)
    yield _rates(findings, measured)


def _arenas(measured: DeviceMeasurements) -> Iterator[ConformanceCheck]:
    if measured.reason or not measured.arenas:
        yield decide("arenas", measured.reason or "none was proven", holds=False)
    for arena in measured.arenas:
        ways = {"judge to worker": arena.read_by_worker, "worker to judge": arena.read_by_judge}
        lost = [way for way, arrived in ways.items() if not arrived]
        evidence = f"a random pattern did not arrive: {', '.join(lost)}" if lost else "random patterns went both ways"
        yield decide(f"arena_of_{arena.nbytes}_bytes", f"{evidence} ({measured.transport})", holds=not lost)


def _memory_back(findings: PlatformFindings) -> ConformanceCheck:
    if not findings.is_accelerator:
        return decide("memory_back_after_each_cell", "a CPU has no memory of its own", holds=None)
    healths = [record.host.health for record in findings.records.values() if record.host.health is not None]
    kept = [one.reason for one in healths if one.memory_back is False]
    back = sum(one.memory_back is True for one in healths)
    # While processes stay for the next cell, and where others use the device, it cannot be told.
    evidence = "; ".join(kept) or f"after {back} of {len(healths)} cells; it cannot be told after the others"
    return decide("memory_back_after_each_cell", evidence, holds=False if kept else (True if back else None))


def _flush(findings: PlatformFindings) -> Iterator[ConformanceCheck]:
    measured = findings.measured
    if not isinstance(measured, DeviceMeasurements) or measured.cold_read_ns is None or measured.warm_read_ns is None:
        reason = measured if isinstance(measured, str) else "no cache is flushed on this platform"
        yield decide("flush_exceeds_cache", reason, holds=None)
        yield decide("cold_read_is_slower", reason, holds=None)
        return
    sessions = [session for record in findings.records.values() for session in record.sessions]
    least = min((workload.flush_bytes for session in sessions for workload in session.workloads), default=0)
    evidence = f"at least {least >> 20} MiB are written, the cache has {measured.cache_bytes >> 20} MiB"
    yield decide("flush_exceeds_cache", evidence, holds=least > measured.cache_bytes)
    cold, warm = measured.cold_read_ns, measured.warm_read_ns
    yield decide("cold_read_is_slower", f"{cold / 1e3:.1f} µs cold, {warm / 1e3:.1f} µs warm", holds=cold > warm)


def _linear(measured: DeviceMeasurements, *, is_accelerator: bool) -> ConformanceCheck:
    evidence = ", ".join(f"{work.copies} copies in {work.device_ns / 1e6:.3f} ms" for work in measured.works)
    if not is_accelerator:
        return decide("time_grows_with_work", f"a CPU's time depends on all else that it does: {evidence}", holds=None)
    first = measured.works[0]
    ratios = [work.device_ns / first.device_ns / (work.copies / first.copies) for work in measured.works]
    return decide("time_grows_with_work", evidence, holds=all(abs(ratio - 1) <= _LINEAR for ratio in ratios))


def _clocks_agree(measured: DeviceMeasurements) -> ConformanceCheck:
    longest = measured.works[-1]
    hidden = longest.wall_ns / longest.device_ns - 1
    evidence = f"{longest.device_ns / 1e6:.3f} ms by the timer, {longest.wall_ns / 1e6:.3f} ms by the host's clock"
    return decide("timer_and_host_clock_agree", evidence, holds=abs(hidden) <= _AGREE)


def _rates(findings: PlatformFindings, measured: DeviceMeasurements) -> ConformanceCheck:
    peak, name = findings.peak, "rates_within_data_sheet"
    if peak is None:
        return decide(name, f"there is no data sheet of {findings.gpu.name}", holds=None)
    limits = {"bytes": peak.bytes_per_s, **peak.flops_per_s}
    rates = {"bytes": measured.bytes_per_s, **measured.flops_per_s}
    shares = {key: rate / limit for key, rate in rates.items() if (limit := limits.get(key))}
    evidence = ", ".join(f"{key} {share:.0%}" for key, share in shares.items())
    return decide(name, f"of the peak in {peak.reference}: {evidence}", holds=max(shares.values()) <= _READING_ERROR)
