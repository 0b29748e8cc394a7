"""Present state of an AMD GPU: one complete snapshot, or many cheap samples.

Most values are in one table that the library reads in one call. Its function for the causes of throttling waits for
100 ms in each call; the counters in the table are the same ones.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from ctypes import c_void_p
from typing import Any

from kernel_matrix.platforms import EventReason, Gpu, TelemetrySample
from kernel_matrix.platforms.rocm.inside.smi_library import energy_mj, structure
from kernel_matrix.platforms.rocm.inside.smi_structs import GpuMetrics, member
from kernel_matrix.platforms.rocm.inventory import memory_bytes
from kernel_matrix.platforms.rocm.processes import listed
from kernel_matrix.platforms.rocm.smi_calls import about, ask, device, value_of

_CYCLES = "accumulation_counter"
_COUNTERS = {
    "prochot_residency_acc": EventReason.HW_SLOWDOWN,
    "ppt_residency_acc": EventReason.SW_POWER_CAP,
    "socket_thm_residency_acc": EventReason.HW_THERMAL,
    "vr_thm_residency_acc": EventReason.HW_THERMAL,
    "hbm_thm_residency_acc": EventReason.HW_THERMAL,
}
"""Counter of the firmware's cycles under a limit → reason. The device itself keeps the limits of heat."""

_BITS = (
    (range(8), EventReason.SW_POWER_CAP),
    (range(16, 24), EventReason.SW_POWER_CAP),  # limits of current, which a kernel reaches as it does those of power
    (range(32, 46), EventReason.HW_THERMAL),
    (range(46, 48), EventReason.HW_SLOWDOWN),
)
"""(bits of ``indep_throttle_status``, reason)."""


def snapshot(gpu: Gpu) -> dict[str, float | int | str | None]:
    """Read clocks, power, temperature, memory in use, energy since the driver was loaded, and throttle bits.

    ``event_reasons`` has the driver's bits that are the same for all devices; those that count cycles have none.

    Raises:
        GpuLostError: if the GPU no longer answers.
        InfrastructureError: if a query fails that the GPU should answer.
    """
    with device(gpu) as handle:
        table = _Table(value_of(_metrics, handle))
        return {
            "sm_clock_mhz": table["current_gfxclk"],
            "mem_clock_mhz": table["current_uclk"],
            "power_w": table.power_w,
            "temperature_c": table.temperature_c,
            "memory_used_bytes": value_of(memory_bytes, handle, "usage"),
            "event_reasons": table["indep_throttle_status"],
            "energy_mj": value_of(energy_mj, handle),
        }


def clocks(gpu: Gpu) -> tuple[int | None, int | None]:
    """Read SM and memory clock in MHz; this is faster than a snapshot, and used many times after a reset.

    Raises:
        GpuLostError: if the GPU no longer answers.
        InfrastructureError: if a query fails that the GPU should answer.
    """
    with device(gpu) as handle:
        table = _Table(value_of(_metrics, handle))
        return table["current_gfxclk"], table["current_uclk"]


def sampler(gpu: Gpu) -> Callable[[], TelemetrySample]:
    """Make a function that reads ``gpu`` fast enough for many samples a second, while the library is open.

    The function raises :class:`kernel_matrix.errors.GpuLostError` if the device no longer answers, and
    :class:`kernel_matrix.errors.InfrastructureError` if the driver cannot list its processes. Another field that fails
    is ``None`` in that sample: a failing sensor must not hide foreign processes.

    Raises:
        GpuLostError: if the device cannot be found.
    """
    with device(gpu) as handle:
        return _Sampler(gpu, handle)


class _Table:
    """The library's table of measurements; a field that is not reported is ``None``."""

    def __init__(self, metrics: GpuMetrics | None) -> None:
        self._metrics = metrics

    def __getitem__(self, name: str) -> Any:
        return None if self._metrics is None else member(self._metrics, name)

    @property
    def power_average_w(self) -> float | None:
        """Average power; devices since MI300 do not report it."""
        average = self["average_socket_power"]
        return None if average is None else float(average)

    @property
    def power_w(self) -> float | None:
        """Power at this moment, or the average if the device reports only this."""
        now = self["current_socket_power"]
        return self.power_average_w if now is None else float(now)

    @property
    def temperature_c(self) -> Any:
        """Temperature of the hottest spot, which the limits are about, or of the edge."""
        hottest = self["temperature_hotspot"]
        return self["temperature_edge"] if hottest is None else hottest


class _Sampler:
    """All queries of one sample, bound to the handle of one device."""

    def __init__(self, gpu: Gpu, handle: c_void_p) -> None:
        self._gpu = gpu
        self._handle = handle
        self._reasons = _Reasons()
        self._reasons.read(_Table(ask(gpu, _metrics, handle).value))  # what later samples are compared with

    def __call__(self) -> TelemetrySample:
        with about(self._gpu):
            table = _Table(self._value(_metrics))
            return TelemetrySample(
                at_ns=time.monotonic_ns(),
                sm_clock_mhz=table["current_gfxclk"],
                mem_clock_mhz=table["current_uclk"],
                power_w=table.power_w,
                power_average_w=table.power_average_w,
                energy_mj=self._value(energy_mj),
                temperature_c=table.temperature_c,
                utilization_percent=table["average_gfx_activity"],
                memory_used_bytes=self._value(memory_bytes, "usage"),
                reasons=self._reasons.read(table),
                pids=listed(self._handle),
            )

    def _value(self, query: Callable[..., Any], *args: Any) -> Any:
        return ask(self._gpu, query, self._handle, *args).value


class _Reasons:
    """Reasons for the clock between two readings of the counters, or now if the device has bits instead of counters.

    The counters are in cycles of unknown length, so that they give no time under a reason.
    """

    def __init__(self) -> None:
        self._before: dict[str, int] = {}
        self._last: tuple[EventReason, ...] | None = None

    def read(self, table: _Table) -> tuple[EventReason, ...] | None:
        """Return the reasons in ``table``; ``None`` if they are not known."""
        counted = {name: count for name in (_CYCLES, *_COUNTERS) if (count := table[name]) is not None}
        if _CYCLES not in counted or len(counted) == 1:
            return _reasons_in(table["indep_throttle_status"])
        before, self._before = self._before, counted
        if counted[_CYCLES] != before.get(_CYCLES):  # else the firmware has counted nothing since
            grown = {_COUNTERS[name] for name in before.keys() & _COUNTERS if counted.get(name, 0) > before[name]}
            self._last = _in_order(grown) if before else None
        return self._last


def _metrics(handle: c_void_p) -> GpuMetrics:
    return structure("amdsmi_get_gpu_metrics_info", GpuMetrics, handle)


def _reasons_in(bits: int | None) -> tuple[EventReason, ...] | None:
    if bits is None:
        return None
    found = {reason for numbers, reason in _BITS if any(bits >> number & 1 for number in numbers)}
    return _in_order(found)


def _in_order(reasons: set[EventReason]) -> tuple[EventReason, ...]:
    return tuple(reason for reason in EventReason if reason in reasons)
