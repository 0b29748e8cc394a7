"""Made-up snapshots and blocks for tests, at milliseconds of an imagined clock."""

from __future__ import annotations

from dataclasses import replace

from kernel_matrix.attempt.telemetry_join import ObservedSession
from kernel_matrix.lease import DeviceSnapshot
from kernel_matrix.model.enums import Role
from kernel_matrix.model.messages import Block, ClockProbeReading, SessionReport
from kernel_matrix.platforms import EventReason, TelemetrySample
from tests.results import factory

MS = 1_000_000
SM_MHZ = 1500


def look(at_ms, *reasons, own=(11,), foreign=(), trouble="", counters=None, **sample) -> DeviceSnapshot:
    """Make a snapshot of a healthy GPU at ``at_ms``, with changes."""
    told = {
        "sm_clock_mhz": SM_MHZ,
        "mem_clock_mhz": 2619,
        "power_w": 300.0,
        "temperature_c": 50,
        "energy_mj": at_ms * 300,
        "reasons": reasons,
        "reason_ns": counters or {},
        **sample,
    }
    if trouble:
        return DeviceSnapshot(TelemetrySample(at_ns=at_ms * MS), trouble=trouble)
    return DeviceSnapshot(TelemetrySample(at_ns=at_ms * MS, **told), tuple(own), tuple(foreign))


def looks(start_ms, end_ms, **changes) -> list[DeviceSnapshot]:
    """Make one snapshot every 50 ms, from ``start_ms`` to ``end_ms``, both included."""
    return [look(at_ms, **changes) for at_ms in range(start_ms, end_ms + 1, 50)]


def changed(series, at_ms, *reasons, **changes) -> list[DeviceSnapshot]:
    """Return ``series`` with another snapshot at ``at_ms``."""
    return [look(at_ms, *reasons, **changes) if one.sample.at_ns == at_ms * MS else one for one in series]


def block(role, index, start_ms, end_ms) -> Block:
    return Block(
        role=role,
        index=index,
        started_ns=round(start_ms * MS),
        ended_ns=round(end_ms * MS),
        device_ns=(1000,) * 10,
        wall_ns=(1100,) * 10,
    )


A, B = Role.BASELINE, Role.CANDIDATE


def four_blocks(start_ms=110) -> tuple[Block, ...]:
    """Make blocks A B B A, each 80 ms long and 100 ms after the previous one."""
    return tuple(
        block(role, index, start_ms + 100 * index, start_ms + 100 * index + 80)
        for index, role in enumerate((A, B, B, A))
    )


def report(*workloads, number=0, probes=(SM_MHZ,)) -> SessionReport:
    """Make a session of workloads, each given as its blocks."""
    made = tuple(factory.workload(f"w{index}", blocks=tuple(blocks)) for index, blocks in enumerate(workloads))
    said = factory.session(number, workloads=made)
    return with_probes(said, *probes)


def with_probes(said: SessionReport, *megahertz: float) -> SessionReport:
    probes = tuple(
        ClockProbeReading(phase="before", started_ns=1, ended_ns=2, sm_mhz=mhz, low_mhz=mhz, high_mhz=mhz, sms=132)
        for mhz in megahertz
    )
    return replace(said, clock_probes=probes)


def session(said, start_ms=0, end_ms=1000) -> ObservedSession:
    return ObservedSession(report=said, started_ns=start_ms * MS, ended_ns=end_ms * MS)


CAP, HOT, IDLE = EventReason.SW_POWER_CAP, EventReason.HW_THERMAL, EventReason.IDLE
