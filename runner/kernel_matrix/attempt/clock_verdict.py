"""Verdict on the clocks: they count as locked only if the driver and a kernel's own measurement agree with the lock.

The host reads the driver's clock while calls are timed. The judge measures the other one inside a kernel. Both must be
within one percent of the locked clock, in every session.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from kernel_matrix.attempt.telemetry_join import YES, JoinedReports, names_of
from kernel_matrix.lease import ClocksSet
from kernel_matrix.model.enums import ClockState
from kernel_matrix.model.messages import ClockProbeReading
from kernel_matrix.results.record import ClocksInfo, FieldSpread

_TOLERANCE = 0.01


@dataclass(frozen=True, slots=True)
class ClockVerdict:
    """State of the clocks for the record, and the reason."""

    state: ClockState
    reason: str


def clock_verdict(clocks: ClocksSet, joined: JoinedReports) -> ClockVerdict:
    """Decide the state of the clocks over all sessions of a cell on a GPU."""
    if joined.throttled:
        names = ", ".join(names_of(joined.throttled))
        return ClockVerdict(ClockState.THROTTLED, f"too many samples of a workload were taken under {names}")
    if not clocks.locked:
        return ClockVerdict(ClockState.UNLOCKED, clocks.reason)
    doubt = next(_doubts(clocks, joined), "")
    if doubt:
        wanted = f"{clocks.set_sm_mhz} MHz" if clocks.set_sm_mhz is not None else clocks.requested
        return ClockVerdict(ClockState.UNLOCKED, f"locked to {wanted} according to the driver, but {doubt}")
    return ClockVerdict(ClockState.LOCKED, f"{clocks.reason}; verified under load by the driver and inside a kernel")


def clocks_info(clocks: ClocksSet, joined: JoinedReports) -> ClocksInfo:
    """Return the record's part about clocks; the lease must have ended, so that the reset's result is known."""
    driver = joined.summary.spread.get("sm_clock_mhz") if any(joined.under_load) else None
    inside = [probe.sm_mhz for report in joined.reports for probe in report.clock_probes]
    return ClocksInfo(
        requested=clocks.requested,
        requested_memory=clocks.requested_memory,
        set_sm_mhz=clocks.set_sm_mhz,
        set_memory_mhz=clocks.set_memory_mhz,
        set_reason=clocks.reason,
        driver_sm_mhz=driver.median if driver is not None else None,
        kernel_sm_mhz=median(inside) if inside else None,
        reset=clocks.reset.value,
        reset_reason=clocks.reset_reason,
    )


def _doubts(clocks: ClocksSet, joined: JoinedReports) -> Iterator[str]:
    """Yield every reason to doubt that the clocks were held, session by session."""
    if joined.summary.joined != YES:
        yield f"not verified: {joined.summary.joined}"
        return
    timed = [
        (spreads, report.clock_probes)
        for report, spreads in zip(joined.reports, joined.under_load, strict=True)
        if any(workload.blocks for workload in report.workloads)
    ]
    if not timed:
        yield "not verified: nothing was timed"
    for spreads, probes in timed:
        yield from _doubts_of_session(clocks, spreads.get("sm_clock_mhz"), probes)
        yield from _doubts_of_memory(clocks, spreads.get("mem_clock_mhz"))


def _doubts_of_session(
    clocks: ClocksSet, driver: FieldSpread | None, probes: Sequence[ClockProbeReading]
) -> Iterator[str]:
    if driver is None:
        yield "not verified by the driver: it reported no clock while calls were timed"
        return
    if not probes:
        yield "not verified inside a kernel"
        return
    inside = [probe.sm_mhz for probe in probes]
    if clocks.set_sm_mhz is not None:
        for measured in (driver.median, *inside):
            if not _close(measured, clocks.set_sm_mhz):
                yield f"{measured:.0f} MHz were measured under load"
    elif not all(_close(measured, driver.median) for measured in inside):
        furthest = max(inside, key=lambda measured: abs(measured - driver.median))
        yield f"{driver.median:.0f} MHz by the driver are {furthest:.0f} MHz inside a kernel"
    elif not (_close(driver.low, driver.median) and _close(driver.high, driver.median)):
        yield f"under load the clock moved between {driver.low:.0f} and {driver.high:.0f} MHz"


def _doubts_of_memory(clocks: ClocksSet, driver: FieldSpread | None) -> Iterator[str]:
    wanted = clocks.set_memory_mhz
    if wanted is not None and driver is not None and not _close(driver.median, wanted):
        yield f"the memory clock, locked to {wanted} MHz, was {driver.median:.0f} MHz under load"


def _close(measured: float, wanted: float) -> bool:
    return abs(measured - wanted) <= _TOLERANCE * wanted
