"""Platforms: kinds of device. The nouns (``Gpu``, …) and the protocol of a platform's host half.

A platform is a package with the members of :class:`Platform`, and a package ``inside`` below it with those of
:class:`kernel_matrix.inside.platform.InsidePlatform`. To add one: one folder here and one line in
:data:`kernel_matrix.platforms.registry.PLATFORMS`, or an entry point of another package in the group
``kernel_matrix.platforms``. :mod:`kernel_matrix.platforms.cpu` is the simplest example.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

from kernel_matrix.model.enums import Dtype, Language
from kernel_matrix.platforms.check_result import CheckResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One device that a cell can run on. The CPU is one too."""

    platform: str
    """Registry key, ``cpu``."""
    uuid: str
    """Unique on this host: what the driver calls it, or ``cpu``."""
    name: str
    """Product name, or the CPU's model name."""
    index: int = 0
    minor: int | None = None
    """Number of its device node; None where it has none."""
    compute_capability: str | None = None
    """Version of what its instructions can do, ``"9.0"``; None for a CPU."""
    memory_bytes: int = 0
    driver: str | None = None
    """Kernel driver version, e.g. ``580.159.04``."""
    cuda_driver: str | None = None
    """Newest toolkit that the driver runs, e.g. ``13.0``. The name is that of the records' field."""

    @property
    def inside(self) -> str:
        """Platform whose inside half its judge, workers and builders load: its own."""
        return self.platform


def named(gpus: Iterable[Gpu]) -> str:
    """Return ``GPU 0, 1``."""
    return f"GPU {', '.join(str(gpu.index) for gpu in gpus)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformInventory:
    """Devices of a platform, or the reason there are none."""

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
    """See the platform for the names; lists and numbers only, ready for JSON."""
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


NO_ACCESS = "none"
"""Way of a device that cannot be brought into a container here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceAccess:
    """What a process needs to see one device, beside what every process has."""

    way: str = NO_ACCESS
    """Name of the way, for the doctor and for messages."""
    requests: tuple[Mapping[str, Any], ...] = ()
    """Arguments of Docker's ``DeviceRequest``."""
    nodes: tuple[str, ...] = ()
    """Device nodes."""
    libraries: tuple[tuple[str, str], ...] = ()
    """Files and folders of the driver: where each lies on this host, and its path inside."""
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CostFigures:
    """How long the parts of a session take on a platform's devices, roughly, in seconds."""

    start_s: float
    """Until the first call, and after the last one."""
    call_s: float
    """One verification call with its inputs, reference and comparison."""
    timed_call_s: float
    """One timed call with its inputs."""


class Platform(Protocol):
    """The host half of a platform. Nothing in it changes a device but what :meth:`settings` returns.

    ``versions`` are those of a toolchain by package: ``torch``, ``triton``, and the toolkit under the name that the
    platform gives it.
    """

    __file__: str | None
    """Of the package; the inside half is the package ``inside`` beside it."""
    VENDOR: str
    """Name in records, and another name for the platform in matrix files."""
    TITLE: str
    """Kind of device in messages, ``CPU``."""
    IS_ACCELERATOR: bool
    """Its devices are apart from the host's processors: a process is shown one, is alone on it, and leaves it well."""
    NEEDS_IMAGES: bool
    """Its toolchains run from images only, never from the packages beside the runner."""
    SANITIZER: str
    """Module inside that runs a worker under compute-sanitizer; empty where there is none."""
    COST: CostFigures
    ACCESS_ADVICE: str
    """What to do where a device cannot be brought into a container."""
    DAEMON_ERRORS: tuple[tuple[str, str, str], ...]
    """(text of a container daemon's error, what it means, what to do)."""
    HIDDEN: Mapping[str, str]
    """Environment of a container that is shown no device: images may ask for all of them."""
    HIDDEN_IN_PROCESS: Mapping[str, str]
    """The same for a process that is in no container."""
    CACHES: Mapping[str, str]
    """Environment variable → name of the folder that a driver or compiler may keep its cache in."""
    PROGRAM_FOLDERS: tuple[str, ...]
    """Folders of the toolkit's programs on this host."""
    SHARING_SERVER: str
    """Program, as ``/proc/<pid>/comm`` has it, that runs work of several processes on a device; empty for none."""
    ADVICE: Mapping[str, str]
    """How to change what ``kernel-matrix doctor`` finds fault with, by mode: ``mig``, ``mps``, ``compute_mode``, …"""

    def language_obstacle(self, language: Language, compute_capability: str | None) -> str | None:
        """Return why ``language`` does not run on such a device, in words; None if it does."""
        ...

    def dtype_obstacle(self, dtype: Dtype, language: Language, compute_capability: str | None) -> str | None:
        """Return why ``language`` does not compute correctly in ``dtype`` on such a device; None if it does."""
        ...

    def code_obstacle(
        self, versions: Mapping[str, str], compute_capability: str | None, driver: str | None
    ) -> str | None:
        """Return why the toolchain's PyTorch has no code that such a device can run; None if it has."""
        ...

    def driver_obstacle(self, versions: Mapping[str, str], gpu: Gpu) -> str | None:
        """Return why the driver of ``gpu`` cannot run the toolchain; None if it can."""
        ...

    def driver_note(self, versions: Mapping[str, str], driver: str | None) -> str | None:
        """Return what does not work although the driver runs the toolchain; None if everything does."""
        ...

    def toolchain_gaps(self, versions: Mapping[str, str]) -> tuple[str, ...]:
        """Return what is not known about a toolchain, one sentence each; no cell is refused for it."""
        ...

    def compiles(self, language: Language, versions: Mapping[str, str]) -> bool:
        """Return whether the toolchain has a compiler of ``language`` for a device that need not be there."""
        ...

    def compile_target(self, compute_capability: str | None) -> str:
        """Return what a candidate is compiled for; empty where compilers are not told."""
        ...

    def compile_limits(self, compute_capability: str | None) -> Mapping[str, int]:
        """Return ``shared_bytes`` and ``multiprocessors`` of such a device, as far as they are known."""
        ...

    def launch_obstacle(self, *, arch: int, registers: int, shared_bytes: int) -> str:
        """Return why a compiled kernel could not be launched; empty where nothing is known to prevent it.

        Args:
            arch: Compute capability × 10.
            registers: Per thread.
            shared_bytes: Per block.
        """
        ...

    def compile_settings(self, gpu: Gpu) -> Mapping[str, str]:
        """Return environment variables of every process of a cell on ``gpu``, the builder's too."""
        ...

    def container_access(self, info: Mapping[str, Any], gpu: Gpu | None = None) -> DeviceAccess:
        """Return how the daemon that answered ``info`` can bring ``gpu`` into a container (None: any device)."""
        ...

    def process_access(self, gpu: Gpu) -> DeviceAccess:
        """Return what a process of this host needs to see ``gpu`` and no other device of the platform."""
        ...

    def examine_driver(self, inventory: PlatformInventory) -> Iterable[CheckResult]:
        """Return the doctor's lines about the driver, its bindings and each device."""
        ...

    def examine_access(self, info: Mapping[str, Any], ways: Mapping[Gpu, str]) -> Iterable[CheckResult]:
        """Return the doctor's lines about how devices reach containers.

        Args:
            info: Answer of the daemon.
            ways: Way of each device.
        """
        ...

    def examine_toolkit(self, ways: Mapping[Gpu, str]) -> Iterable[CheckResult]:
        """Return the doctor's lines about the program that brings devices into containers."""
        ...

    def interprets(self, language: Language) -> bool:
        """Return whether an interpreter stands for the compiler of ``language`` on this platform."""
        ...

    def local_compiler(self) -> str:
        """Return what tells the platform's compiler on this host from another one, or from itself after an update."""
        ...

    def inventory(self) -> PlatformInventory:
        """Return all devices of this platform; never raises for an absent driver, says so in ``reason``."""
        ...

    def opened(self) -> AbstractContextManager[None]:
        """Keep the driver's library open over many questions; calls nest.

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
        """Return what can be set on devices of this platform; None for nothing."""
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
