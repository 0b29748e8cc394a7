"""Present state of an NVIDIA GPU: one complete snapshot, or many cheap samples."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import lru_cache, partial
from operator import attrgetter
from typing import Any

import pynvml

from kernel_matrix.platforms import EventReason, Gpu, TelemetrySample
from kernel_matrix.platforms.cuda.nvml_calls import GONE, NOT_OFFERED, NvmlQuery, about, device, value_of
from kernel_matrix.platforms.cuda.processes import listing

_REASONS = {
    pynvml.nvmlClocksEventReasonGpuIdle: EventReason.IDLE,
    pynvml.nvmlClocksEventReasonApplicationsClocksSetting: EventReason.APPLICATIONS_CLOCKS,
    pynvml.nvmlClocksEventReasonSwPowerCap: EventReason.SW_POWER_CAP,
    pynvml.nvmlClocksThrottleReasonHwSlowdown: EventReason.HW_SLOWDOWN,
    pynvml.nvmlClocksEventReasonSyncBoost: EventReason.SYNC_BOOST,
    pynvml.nvmlClocksEventReasonSwThermalSlowdown: EventReason.SW_THERMAL,
    pynvml.nvmlClocksThrottleReasonHwThermalSlowdown: EventReason.HW_THERMAL,
    pynvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown: EventReason.POWER_BRAKE,
    pynvml.nvmlClocksEventReasonDisplayClockSetting: EventReason.DISPLAY_CLOCK,
}
"""Bit of NVML's clock event reasons → reason."""

_POWER_AVERAGE = pynvml.NVML_FI_DEV_POWER_AVERAGE
_POWER_INSTANT = pynvml.NVML_FI_DEV_POWER_INSTANT

_COUNTERS = {
    pynvml.NVML_FI_DEV_PERF_POLICY_POWER: EventReason.SW_POWER_CAP,
    pynvml.NVML_FI_DEV_PERF_POLICY_SYNC_BOOST: EventReason.SYNC_BOOST,
}
"""Field → reason whose nanoseconds it counts."""

# Numbers, because older versions of the bindings have no names for these fields.
_LATER_COUNTERS = {269: EventReason.SW_THERMAL, 270: EventReason.HW_THERMAL, 271: EventReason.POWER_BRAKE}
_LATER_COUNTERS_SINCE = (580, 82)
"""First driver whose fields have these numbers; in older ones they are absent, or settings of power smoothing."""
_ALL_COUNTERS = {**_COUNTERS, **_LATER_COUNTERS}

_SLOW_QUERY_INTERVAL_NS = 1_000_000_000  # one second: a slow query then takes about 1 % of a processor's time

_VALUES = tuple(map(attrgetter, ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")))
"""Functions that read a field's value, at the index that is NVML's number of its type."""


def snapshot(gpu: Gpu) -> dict[str, float | int | str | None]:
    """Read clocks, power, temperature, memory in use, energy since the driver was loaded, and clock event reasons.

    ``event_reasons`` has NVML's bits (4: software power cap, 8: hardware slowdown, …).

    Raises:
        GpuLostError: if the GPU no longer answers.
        InfrastructureError: if a query fails that the GPU should answer.
    """
    with device(gpu) as handle:
        sm_clock_mhz, mem_clock_mhz = _clocks(handle)
        return {
            "sm_clock_mhz": sm_clock_mhz,
            "mem_clock_mhz": mem_clock_mhz,
            "power_w": _watts(value_of(pynvml.nvmlDeviceGetPowerUsage, handle)),
            "temperature_c": value_of(pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU),
            "memory_used_bytes": _memory_used(handle)(),
            "event_reasons": _event_reasons(handle)(),
            "energy_mj": value_of(pynvml.nvmlDeviceGetTotalEnergyConsumption, handle),
        }


def clocks(gpu: Gpu) -> tuple[int | None, int | None]:
    """Read SM and memory clock in MHz; this is faster than a snapshot, and used many times after a reset.

    Raises:
        GpuLostError: if the GPU no longer answers.
        InfrastructureError: if a query fails that the GPU should answer.
    """
    with device(gpu) as handle:
        return _clocks(handle)


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


class _Sampler:
    """All queries of one sample, bound to the handle of one device."""

    def __init__(self, gpu: Gpu, handle: Any) -> None:
        self._gpu = gpu
        self._fields = _FieldQuery(handle, (_POWER_INSTANT, _POWER_AVERAGE, *_counters()))
        self._sm_clock = NvmlQuery(partial(pynvml.nvmlDeviceGetClockInfo, handle, pynvml.NVML_CLOCK_SM))
        self._mem_clock = NvmlQuery(partial(pynvml.nvmlDeviceGetClockInfo, handle, pynvml.NVML_CLOCK_MEM))
        self._reasons = _event_reasons(handle)
        self._power = NvmlQuery(partial(pynvml.nvmlDeviceGetPowerUsage, handle))
        self._energy = _SlowQuery(NvmlQuery(partial(pynvml.nvmlDeviceGetTotalEnergyConsumption, handle)))
        self._temperature = NvmlQuery(partial(pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU))
        self._utilization = NvmlQuery(partial(_utilization, handle))
        self._memory_used = _memory_used(handle)
        self._violations = {
            EventReason.SW_POWER_CAP: NvmlQuery(partial(_violation_ns, handle, pynvml.NVML_PERF_POLICY_POWER)),
            EventReason.SW_THERMAL: NvmlQuery(partial(_violation_ns, handle, pynvml.NVML_PERF_POLICY_THERMAL)),
        }
        self._pids = listing(handle)

    def __call__(self) -> TelemetrySample:
        with about(self._gpu):
            # Values that are joined to timed blocks are read right before and after the timestamp; others later.
            fields = self._fields()
            sm_clock = _value_or_none(self._sm_clock)
            at_ns = time.monotonic_ns()
            bits = _value_or_none(self._reasons)
            return TelemetrySample(
                at_ns=at_ns,
                sm_clock_mhz=sm_clock,
                mem_clock_mhz=_value_or_none(self._mem_clock),
                power_w=_watts(fields[_POWER_INSTANT] if _POWER_INSTANT in fields else _value_or_none(self._power)),
                power_average_w=_watts(fields.get(_POWER_AVERAGE)),
                energy_mj=self._energy(at_ns),
                temperature_c=_value_or_none(self._temperature),
                utilization_percent=_value_or_none(self._utilization),
                memory_used_bytes=_value_or_none(self._memory_used),
                reasons=None if bits is None else _reasons_of(bits),
                reason_ns=self._reason_ns(fields),
                pids=self._pids(),
            )

    def _reason_ns(self, fields: dict[int, Any]) -> dict[EventReason, int]:
        # The kind of counter never changes between samples: the two kinds have different values, and the difference of
        # two samples is what is used.
        if self._fields.offered & _ALL_COUNTERS.keys():
            return {reason: fields[field] for field, reason in _ALL_COUNTERS.items() if field in fields}
        answers = {reason: _value_or_none(query) for reason, query in self._violations.items()}
        return {reason: nanoseconds for reason, nanoseconds in answers.items() if nanoseconds is not None}


class _SlowQuery:
    """Query that is too slow for every sample: it is made once a second, and its value is ``None`` in between.

    The driver of an H200 needs 3 to 15 ms of processor time to add up the energy, but only microseconds for the clock.
    """

    def __init__(self, query: NvmlQuery) -> None:
        self._query = query
        self._due_ns = 0

    def __call__(self, now_ns: int) -> Any:
        if now_ns < self._due_ns:
            return None
        self._due_ns = now_ns + _SLOW_QUERY_INTERVAL_NS
        return _value_or_none(self._query)


class _FieldQuery:
    """Query of several field values in one call; a field that is not supported is dropped."""

    def __init__(self, handle: Any, fields: Iterable[int]) -> None:
        self._handle = handle
        self._fields = list(fields)
        self._query = NvmlQuery(lambda: pynvml.nvmlDeviceGetFieldValues(self._handle, self._fields))

    @property
    def offered(self) -> set[int]:
        """Fields that have not turned out to be unsupported."""
        return set(self._fields) if self._query.offered else set()

    def __call__(self) -> dict[int, Any]:
        """Return field → value, for the fields that have a value now."""
        values = {}
        for answer in (_value_or_none(self._query) or ()) if self._fields else ():
            if answer.nvmlReturn == pynvml.NVML_SUCCESS:
                values[answer.fieldId] = _VALUES[answer.valueType](answer.value)
            elif answer.nvmlReturn in GONE:
                raise pynvml.NVMLError(answer.nvmlReturn)
            elif answer.nvmlReturn in NOT_OFFERED or answer.nvmlReturn == pynvml.NVML_ERROR_INVALID_ARGUMENT:
                self._fields.remove(answer.fieldId)
        return values


def _counters() -> Iterable[int]:
    """Return the fields in which this driver counts the time under a reason."""
    driver = str(value_of(pynvml.nvmlSystemGetDriverVersion) or "0")
    version = tuple(int(number) for number in driver.split(".")[:2] if number.isdigit())
    return _ALL_COUNTERS if version >= _LATER_COUNTERS_SINCE else _COUNTERS


def _value_or_none(query: NvmlQuery) -> Any:
    """Return the answer, or ``None`` if the query fails; raise only if the device is lost."""
    try:
        return query()
    except pynvml.NVMLError as error:
        if error.value in GONE:
            raise
        return None


def _clocks(handle: Any) -> tuple[int | None, int | None]:
    kinds = (pynvml.NVML_CLOCK_SM, pynvml.NVML_CLOCK_MEM)
    sm_mhz, memory_mhz = (value_of(pynvml.nvmlDeviceGetClockInfo, handle, kind) for kind in kinds)
    return sm_mhz, memory_mhz


def _event_reasons(handle: Any) -> NvmlQuery:
    # Drivers before 535 have the same bits under an older name only.
    return NvmlQuery(
        partial(pynvml.nvmlDeviceGetCurrentClocksEventReasons, handle),
        partial(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle),
    )


def _memory_used(handle: Any) -> NvmlQuery:
    # The newer form leaves out the memory that the driver reserves for itself; the older one includes it.
    return NvmlQuery(
        lambda: pynvml.nvmlDeviceGetMemoryInfo(handle, pynvml.nvmlMemory_v2).used,
        lambda: pynvml.nvmlDeviceGetMemoryInfo(handle).used,
    )


def _utilization(handle: Any) -> int:
    percent: int = pynvml.nvmlDeviceGetUtilizationRates(handle).gpu
    return percent


def _violation_ns(handle: Any, policy: int) -> int:
    nanoseconds: int = pynvml.nvmlDeviceGetViolationStatus(handle, policy).violationTime
    return nanoseconds


def _watts(milliwatts: int | None) -> float | None:
    return None if milliwatts is None else milliwatts / 1000


@lru_cache(maxsize=64)  # a device reports few combinations, many times a second
def _reasons_of(bits: int) -> tuple[EventReason, ...]:
    return tuple(reason for bit, reason in _REASONS.items() if bits & bit)
