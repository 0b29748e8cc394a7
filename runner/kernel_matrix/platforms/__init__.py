"""The devices of this host: the ``Gpu`` noun, what one tells and lets be set, the ``Platform`` protocol, the registry.

A vendor is a module (or package) with the functions of :class:`Platform`. To add one: one file here and one line in
:data:`VENDORS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One device a cell can run on. ``cpu`` is one too: the embedded default."""

    vendor: str
    """Registry key: ``cpu`` or ``nvidia``."""
    uuid: str
    """NVML's UUID, or ``cpu``."""
    name: str
    """NVML's product name, or the CPU's model name."""
    index: int = 0
    minor: int | None = None
    """Number of its device node, ``/dev/nvidia<minor>``."""
    compute_capability: str | None = None
    """``"9.0"``; null for a CPU."""
    memory_bytes: int = 0
    driver: str | None = None
    """Kernel driver version, e.g. ``580.159.04``."""
    cuda_driver: str | None = None
    """Newest CUDA the driver runs, e.g. ``13.0``."""

    @property
    def torch_device(self) -> str:
        """What torch calls it inside a container that sees only this one."""
        return "cpu" if self.vendor == "cpu" else "cuda"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformInventory:
    """What a vendor's library says: devices, or the reason there are none."""

    gpus: tuple[Gpu, ...] = ()
    reason: str = ""
    """Why the list is empty or incomplete, in words."""


class EventReason(str, Enum):
    """Why a GPU's clock is what it is."""

    IDLE = "idle"
    """Nothing runs."""
    APPLICATIONS_CLOCKS = "applications_clocks"
    """Somebody set application clocks."""
    SW_POWER_CAP = "sw_power_cap"
    """The power limit is reached."""
    HW_SLOWDOWN = "hw_slowdown"
    """The hardware halved the clock, or more: heat, or the power supply."""
    SYNC_BOOST = "sync_boost"
    """It follows another GPU of its group."""
    SW_THERMAL = "sw_thermal"
    """The driver lowers the clock because of heat."""
    HW_THERMAL = "hw_thermal"
    """The hardware lowers the clock because of heat."""
    POWER_BRAKE = "power_brake"
    """The power supply asked for it."""
    DISPLAY_CLOCK = "display_clock"
    """A display sets the clock."""


THROTTLING = frozenset(
    {
        EventReason.SW_POWER_CAP,
        EventReason.HW_SLOWDOWN,
        EventReason.SW_THERMAL,
        EventReason.HW_THERMAL,
        EventReason.POWER_BRAKE,
    }
)
"""Reasons under which a time is not the time of an undisturbed GPU."""

AILING = THROTTLING - {EventReason.SW_POWER_CAP}
"""Those that are about the machine, not about the kernel: trying again later may help."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetrySample:
    """One look at a device. A field the device does not answer is null."""

    at_ns: int
    """``time.monotonic_ns()`` of this host."""
    sm_clock_mhz: int | None = None
    mem_clock_mhz: int | None = None
    power_w: float | None = None
    """Now."""
    power_average_w: float | None = None
    """Over the driver's own window (a second on most boards)."""
    energy_mj: int | None = None
    """Millijoules since the driver was loaded; null in most samples of a driver that takes long to say it."""
    temperature_c: int | None = None
    utilization_percent: int | None = None
    memory_used_bytes: int | None = None
    """Without what the driver keeps for itself, where it tells that apart."""
    reasons: tuple[EventReason, ...] | None = None
    reason_ns: Mapping[EventReason, int] = field(default_factory=dict)
    """Nanoseconds spent under a reason since the driver was loaded, for the reasons that are counted."""
    pids: tuple[int, ...] = ()
    """Host PIDs with a compute, graphics or MPS context, ascending."""


class ComputeMode(str, Enum):
    """Who may open a device for computing."""

    DEFAULT = "default"
    """Any number of processes."""
    EXCLUSIVE_THREAD = "exclusive_thread"
    """One thread (old drivers)."""
    PROHIBITED = "prohibited"
    """Nobody."""
    EXCLUSIVE_PROCESS = "exclusive_process"
    """One process; those that are on it already stay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceModes:
    """Modes of a device that decide whether anybody can be alone on it. Null: not supported, so not on."""

    mig: bool | None = None
    mps: bool | None = None
    """True when an MPS server has a context on it."""
    compute_mode: ComputeMode | None = None
    persistence: bool | None = None
    ecc: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceDetails:
    """Everything else the driver says about a device: plain values by name, and why some are null."""

    values: Mapping[str, Any]
    """See the vendor for the names; lists and numbers only, ready for JSON."""
    missing: Mapping[str, str]
    """Name → why its value is null, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockChoices:
    """What clocks a device can be locked to, MHz, each list descending. Empty: the driver does not say."""

    sm_mhz: tuple[int, ...] = ()
    """At the highest memory clock."""
    memory_mhz: tuple[int, ...] = ()
    base_sm_mhz: int | None = None
    """What the driver's TDP clock is, where it says."""
    consumer: bool = False
    """A consumer card: locking its memory clock costs it power and core clock."""


class Platform(Protocol):
    """What the runner needs to know from a vendor's library. Everything here only reads."""

    def inventory(self) -> PlatformInventory:
        """All devices of this vendor; never raises for an absent driver, says so in ``reason``."""
        ...

    def opened(self) -> AbstractContextManager[None]:
        """Keep the vendor's library open over many questions; calls nest.

        :raises kernel_matrix.errors.InfrastructureError: when it cannot be opened.
        """
        ...

    def processes(self, gpu: Gpu) -> Sequence[int]:
        """PIDs with a context on ``gpu`` (host PIDs), ascending.

        :raises kernel_matrix.errors.GpuLostError: when the device no longer answers.
        :raises kernel_matrix.errors.InfrastructureError: when the driver cannot say.
        """
        ...

    def snapshot(self, gpu: Gpu) -> dict[str, float | int | str | None]:
        """Clocks, power, temperature, used memory and event reasons now; a field that is not supported is null.

        :raises kernel_matrix.errors.InfrastructureError: when the device does not answer at all.
        """
        ...

    def clocks(self, gpu: Gpu) -> tuple[int | None, int | None]:
        """SM and memory clock now, MHz; null where there is none, or the driver does not say.

        :raises kernel_matrix.errors.InfrastructureError: when the device does not answer at all.
        """
        ...

    def details(self, gpu: Gpu) -> DeviceDetails:
        """Bus, VBIOS, ECC, MIG, power limits, supported clocks and more.

        :raises kernel_matrix.errors.InfrastructureError: when the device does not answer at all.
        """
        ...

    def modes(self, gpu: Gpu) -> DeviceModes:
        """MIG, MPS, compute mode, persistence, ECC now.

        :raises kernel_matrix.errors.InfrastructureError: when the device does not answer at all.
        """
        ...

    def clock_choices(self, gpu: Gpu) -> ClockChoices:
        """What ``gpu`` can be locked to.

        :raises kernel_matrix.errors.InfrastructureError: when the device does not answer at all.
        """
        ...

    def sampler(self, gpu: Gpu) -> Callable[[], TelemetrySample] | None:
        """A cheap way to look at ``gpu`` many times a second; null where there is nothing to see (CPU).

        The function it returns raises :class:`kernel_matrix.errors.GpuLostError` when the device no longer answers, and
        may only be called while the library is :meth:`opened`.
        """
        ...

    def settings(self) -> DeviceSettings | None:
        """What can be set on devices of this vendor; null for nothing."""
        ...


class DeviceSettings(Protocol):
    """The few settings that are ever changed. Every call is checked against this host's permission first.

    All raise :class:`kernel_matrix.errors.GpuSettingError`, with ``permitted`` false where this host or the driver
    forbids it and ``supported`` false where the device does not offer it (NVML: not supported, function not found), and
    :class:`kernel_matrix.errors.GpuLostError` when the device no longer answers.
    """

    def lock_sm_clock(self, gpu: Gpu, megahertz: int | None) -> None:
        """Lock the SM clock; null: to the driver's symbolic TDP clock."""
        ...

    def lock_memory_clock(self, gpu: Gpu, megahertz: int) -> None:
        """Lock the memory clock."""
        ...

    def reset_sm_clock(self, gpu: Gpu) -> None:
        """Give the SM clock back to the driver."""
        ...

    def reset_memory_clock(self, gpu: Gpu) -> None:
        """Give the memory clock back to the driver."""
        ...

    def set_compute_mode(self, gpu: Gpu, mode: ComputeMode) -> None:
        """Say who may open the device."""
        ...


VENDORS = {"cpu": "kernel_matrix.platforms.cpu", "nvidia": "kernel_matrix.platforms.cuda"}
"""Vendor name → module, imported when asked for."""


def vendor(name: str) -> Platform:
    """The vendor module registered as ``name``."""
    import importlib  # noqa: PLC0415  # NVML's bindings are loaded only when a GPU is asked for

    module: Platform = importlib.import_module(VENDORS[name])
    return module


def host_inventory() -> dict[str, PlatformInventory]:
    """Every vendor's inventory on this host."""
    return {name: vendor(name).inventory() for name in VENDORS}
