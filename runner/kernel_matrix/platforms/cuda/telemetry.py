"""What an NVIDIA GPU does now: one careful look, or many cheap ones."""

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
"""NVML's bit → reason."""

_POWER_AVERAGE = pynvml.NVML_FI_DEV_POWER_AVERAGE
_POWER_INSTANT = pynvml.NVML_FI_DEV_POWER_INSTANT

_COUNTERS = {
    pynvml.NVML_FI_DEV_PERF_POLICY_POWER: EventReason.SW_POWER_CAP,
    pynvml.NVML_FI_DEV_PERF_POLICY_SYNC_BOOST: EventReason.SYNC_BOOST,
}
"""Field → the reason whose nanoseconds it counts."""

# By number: the bindings name these fields only since the numbers were settled.
_LATER_COUNTERS = {269: EventReason.SW_THERMAL, 270: EventReason.HW_THERMAL, 271: EventReason.POWER_BRAKE}
_LATER_COUNTERS_SINCE = (580, 82)
"""Drivers before this one counted under other numbers, or answer these with power-smoothing settings."""
_ALL_COUNTERS = {**_COUNTERS, **_LATER_COUNTERS}

_SELDOM_NS = 1_000_000_000

_VALUES = tuple(map(attrgetter, ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")))
"""How to read a field's value, by NVML's number of its type."""


def snapshot(gpu: Gpu) -> dict[str, float | int | str | None]:
    """Clocks, power, temperature, memory in use, energy since the driver was loaded, and why the clock is what it is.

    ``event_reasons`` holds NVML's clock event bits (4: software power cap, 8: hardware slowdown, …).

    :raises GpuLostError: when the GPU no longer answers.
    :raises InfrastructureError: when a question that it should answer fails.
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
    """SM and memory clock, MHz: what is asked many times after a reset, without the dearer rest of a snapshot.

    :raises GpuLostError: when the GPU no longer answers.
    :raises InfrastructureError: when a question that it should answer fails.
    """
    with device(gpu) as handle:
        return _clocks(handle)


def sampler(gpu: Gpu) -> Callable[[], TelemetrySample]:
    """A cheap way to look at ``gpu`` many times a second, while the library is open.

    What it returns raises :class:`kernel_matrix.errors.GpuLostError` when the device no longer answers, and
    :class:`kernel_matrix.errors.InfrastructureError` when the driver cannot say who is on it. A field that fails for
    another cause is null in that one sample: a sensor that stumbles must not hide who else is there.

    :raises GpuLostError: when the device cannot be found.
    """
    with device(gpu) as handle:
        return _Sampler(gpu, handle)


class _Sampler:
    """All questions of one sample, bound to one device's handle."""

    def __init__(self, gpu: Gpu, handle: Any) -> None:
        self._gpu = gpu
        self._fields = _Fields(handle, (_POWER_INSTANT, _POWER_AVERAGE, *_counters()))
        self._sm_clock = NvmlQuery(partial(pynvml.nvmlDeviceGetClockInfo, handle, pynvml.NVML_CLOCK_SM))
        self._mem_clock = NvmlQuery(partial(pynvml.nvmlDeviceGetClockInfo, handle, pynvml.NVML_CLOCK_MEM))
        self._reasons = _event_reasons(handle)
        self._power = NvmlQuery(partial(pynvml.nvmlDeviceGetPowerUsage, handle))
        self._energy = _Seldom(NvmlQuery(partial(pynvml.nvmlDeviceGetTotalEnergyConsumption, handle)))
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
            # What is joined to timed blocks is asked right before and after the clock is read; the rest can wait.
            fields = self._fields()
            sm_clock = _or_null(self._sm_clock)
            at_ns = time.monotonic_ns()
            bits = _or_null(self._reasons)
            return TelemetrySample(
                at_ns=at_ns,
                sm_clock_mhz=sm_clock,
                mem_clock_mhz=_or_null(self._mem_clock),
                power_w=_watts(fields[_POWER_INSTANT] if _POWER_INSTANT in fields else _or_null(self._power)),
                power_average_w=_watts(fields.get(_POWER_AVERAGE)),
                energy_mj=self._energy(at_ns),
                temperature_c=_or_null(self._temperature),
                utilization_percent=_or_null(self._utilization),
                memory_used_bytes=_or_null(self._memory_used),
                reasons=None if bits is None else _in_words(bits),
                reason_ns=self._reason_ns(fields),
                pids=self._pids(),
            )

    def _reason_ns(self, fields: dict[int, Any]) -> dict[EventReason, int]:
        # One kind of counter for good: the two do not count the same, and what matters is how they grow.
        if self._fields.offered & _ALL_COUNTERS.keys():
            return {reason: fields[field] for field, reason in _ALL_COUNTERS.items() if field in fields}
        answers = {reason: _or_null(question) for reason, question in self._violations.items()}
        return {reason: nanoseconds for reason, nanoseconds in answers.items() if nanoseconds is not None}


class _Seldom:
    """A question too dear for every sample: asked once a second, and null in between.

    An H200 takes 3 to 15 ms of processor time to add up its energy, a thousand times what it takes to name its clock.
    """

    def __init__(self, question: NvmlQuery) -> None:
        self._question = question
        self._due_ns = 0

    def __call__(self, now_ns: int) -> Any:
        if now_ns < self._due_ns:
            return None
        self._due_ns = now_ns + _SELDOM_NS
        return _or_null(self._question)


class _Fields:
    """Field values of one device, all in one call; a field that is not offered is not asked again."""

    def __init__(self, handle: Any, fields: Iterable[int]) -> None:
        self._handle = handle
        self._fields = list(fields)
        self._ask = NvmlQuery(lambda: pynvml.nvmlDeviceGetFieldValues(self._handle, self._fields))

    @property
    def offered(self) -> set[int]:
        """Those that may still be answered."""
        return set(self._fields) if self._ask.offered else set()

    def __call__(self) -> dict[int, Any]:
        """Field → value, for those that have one now."""
        values = {}
        for answer in (_or_null(self._ask) or ()) if self._fields else ():
            if answer.nvmlReturn == pynvml.NVML_SUCCESS:
                values[answer.fieldId] = _VALUES[answer.valueType](answer.value)
            elif answer.nvmlReturn in GONE:
                raise pynvml.NVMLError(answer.nvmlReturn)
            elif answer.nvmlReturn in NOT_OFFERED or answer.nvmlReturn == pynvml.NVML_ERROR_INVALID_ARGUMENT:
                self._fields.remove(answer.fieldId)
        return values


def _counters() -> Iterable[int]:
    """Fields that count time under a reason with this driver."""
    driver = str(value_of(pynvml.nvmlSystemGetDriverVersion) or "0")
    version = tuple(int(number) for number in driver.split(".")[:2] if number.isdigit())
    return _ALL_COUNTERS if version >= _LATER_COUNTERS_SINCE else _COUNTERS


def _or_null(question: NvmlQuery) -> Any:
    """The answer, or null when there is none this time."""
    try:
        return question()
    except pynvml.NVMLError as error:
        if error.value in GONE:
            raise
        return None


def _clocks(handle: Any) -> tuple[int | None, int | None]:
    kinds = (pynvml.NVML_CLOCK_SM, pynvml.NVML_CLOCK_MEM)
    sm_mhz, memory_mhz = (value_of(pynvml.nvmlDeviceGetClockInfo, handle, kind) for kind in kinds)
    return sm_mhz, memory_mhz


def _event_reasons(handle: Any) -> NvmlQuery:
    # Drivers before 535 know the same bits under their old name only.
    return NvmlQuery(
        partial(pynvml.nvmlDeviceGetCurrentClocksEventReasons, handle),
        partial(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle),
    )


def _memory_used(handle: Any) -> NvmlQuery:
    # The second form does not count what the driver keeps for itself.
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


@lru_cache(maxsize=64)  # a device shows a handful of combinations, many times a second
def _in_words(bits: int) -> tuple[EventReason, ...]:
    return tuple(reason for bit, reason in _REASONS.items() if bits & bit)
