"""Platforms, which are kinds of device: their types (``Gpu``, …) and the protocol of a platform's host half.

A platform is a package with the members of :class:`Platform`, and a package ``inside`` below it with those of
:class:`kernel_matrix.inside.platform.InsidePlatform`. To add one, add one folder here and one line in
:data:`kernel_matrix.platforms.registry.PLATFORMS`, or an entry point of another package in the group
``kernel_matrix.platforms``. :mod:`kernel_matrix.platforms.cpu` is the simplest example.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Protocol

from kernel_matrix.inside.wire import KernelCode
from kernel_matrix.model.enums import Dtype, Language, Status
from kernel_matrix.platforms.check_result import CheckResult


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuLink:
    """Connection from one device to another one of the same host, as the driver describes it."""

    to: str
    """UUID of the other device."""
    kind: str | None = None
    """Member of the platform's ``LINK_KINDS``; ``None`` if the driver does not say."""
    lanes: int | None = None
    """Number of parallel connections of this kind between the two."""
    bytes_per_s: float | None = None
    """Highest bandwidth of all lanes together, in one direction."""
    peer: bool | None = None
    """Whether the device can access the memory of the other one; ``None`` if the driver does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One device that a cell can run on; the CPU counts as one, too."""

    platform: str
    """Registry key, such as ``cpu``."""
    uuid: str
    """Identifier that is unique on this host: the driver's UUID, or ``cpu``."""
    name: str
    """Product name, or the CPU's model name."""
    index: int = 0
    minor: int | None = None
    """Number of its device node; ``None`` if it has no node."""
    compute_capability: str | None = None
    """Version of its instruction set, such as ``9.0``; ``None`` for a CPU."""
    memory_bytes: int = 0
    driver: str | None = None
    """Version of the kernel driver, such as ``580.159.04``."""
    cuda_driver: str | None = None
    """Newest toolkit that the driver runs, such as ``13.0``. Records have a field of this name."""
    devices: tuple[Gpu, ...] = ()
    """Devices of a group, in the order of ranks; empty for a single device."""
    links: tuple[GpuLink, ...] = ()
    """Links to the other devices of its platform here; empty for a group, and on a host with one device."""

    @property
    def inside(self) -> str:
        """Platform whose inside half judge, workers and builders of this device load."""
        return self.platform

    @property
    def members(self) -> tuple[Gpu, ...]:
        """Devices of the group, in the order of ranks; the device itself if it is none."""
        return self.devices or (self,)


def group_of(gpus: Iterable[Gpu]) -> Gpu:
    """Return the group of these devices, one for each rank; a group has all their UUIDs in one.

    They are in the order of UUIDs, in which every program locks them, so that no two wait for each other.
    """
    members = tuple(sorted(gpus, key=lambda gpu: gpu.uuid))
    uuid = "+".join(gpu.uuid for gpu in members)
    least = min(gpu.memory_bytes for gpu in members)
    return replace(members[0], uuid=uuid, memory_bytes=least, devices=members, links=())


def named(gpus: Iterable[Gpu]) -> str:
    """Return the name of ``gpus`` in messages, such as ``GPU 0, 1``."""
    return f"GPU {', '.join(str(gpu.index) for gpu in gpus)}"


def holds_for_all(answers: Iterable[bool | None]) -> bool | None:
    """Return ``False`` if one answer is, else ``None`` if one is not known, else ``True``."""
    found = set(answers)
    return next((answer for answer in (False, None) if answer in found), True)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformInventory:
    """Devices of a platform on this host."""

    gpus: tuple[Gpu, ...] = ()
    reason: str = ""
    """Reason why the list is empty or incomplete."""


class EventReason(str, Enum):
    """Reason for the present clock of a GPU."""

    IDLE = "idle"
    """No work runs."""
    APPLICATIONS_CLOCKS = "applications_clocks"
    """Application clocks are set."""
    SW_POWER_CAP = "sw_power_cap"
    """The power limit is reached."""
    HW_SLOWDOWN = "hw_slowdown"
    """The hardware reduced the clock to a half or less because of heat or the power supply."""
    SYNC_BOOST = "sync_boost"
    """The GPU follows another one of its group."""
    SW_THERMAL = "sw_thermal"
    """The driver lowers the clock because of heat."""
    HW_THERMAL = "hw_thermal"
    """The hardware lowers the clock because of heat."""
    POWER_BRAKE = "power_brake"
    """The power supply asked for a lower clock."""
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
"""Reasons for which a time is not the time of an undisturbed GPU."""

AILING = THROTTLING - {EventReason.SW_POWER_CAP}
"""Reasons that come from the machine and not from the kernel, so that a later attempt may help."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetrySample:
    """One reading of a device. A field that the device does not report is ``None``."""

    at_ns: int
    """``time.monotonic_ns()`` of this host."""
    sm_clock_mhz: int | None = None
    mem_clock_mhz: int | None = None
    power_w: float | None = None
    """Power at this moment."""
    power_average_w: float | None = None
    """Average over the driver's own window, which is one second on most boards."""
    energy_mj: int | None = None
    """Millijoules since the driver was loaded; ``None`` in most samples, because it is slow to read."""
    temperature_c: int | None = None
    utilization_percent: int | None = None
    memory_used_bytes: int | None = None
    """Memory in use, without the driver's own share if the driver reports that separately."""
    reasons: tuple[EventReason, ...] | None = None
    reason_ns: Mapping[EventReason, int] = field(default_factory=dict)
    """Reason → nanoseconds under it since the driver was loaded, for the reasons that the driver counts."""
    pids: tuple[int, ...] = ()
    """Host PIDs with a compute, graphics or MPS context, ascending."""


class ComputeMode(str, Enum):
    """Rule for the processes that may open a device for computing."""

    DEFAULT = "default"
    """Any number of processes."""
    EXCLUSIVE_THREAD = "exclusive_thread"
    """One thread (old drivers)."""
    PROHIBITED = "prohibited"
    """No process."""
    EXCLUSIVE_PROCESS = "exclusive_process"
    """One process; processes that are on the device already stay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceModes:
    """Modes of a device that decide whether a process can have it for itself.

    ``None`` means that the device does not support a mode, so that it is off.
    """

    mig: bool | None = None
    """True if the device is divided into parts, such as MIG instances or compute partitions."""
    mps: bool | None = None
    """True if an MPS server has a context on the device."""
    compute_mode: ComputeMode | None = None
    persistence: bool | None = None
    ecc: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceDetails:
    """Further properties of a device, as its driver reports them."""

    values: Mapping[str, Any]
    """Name → value that JSON can hold. The platform defines the names."""
    missing: Mapping[str, str]
    """Name → reason why its value is ``None``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockChoices:
    """Clocks that a device can be locked to, in MHz and descending; empty if the driver does not list them."""

    sm_mhz: tuple[int, ...] = ()
    """SM clocks at the highest memory clock."""
    memory_mhz: tuple[int, ...] = ()
    base_sm_mhz: int | None = None
    """The driver's TDP clock, if the driver reports it."""
    consumer: bool = False
    """A consumer card, on which a locked memory clock costs power and core clock."""


NO_ACCESS = "none"
"""Way of a device that cannot be given to a container here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceAccess:
    """Additional requirements of a process that is to see one device."""

    way: str = NO_ACCESS
    """Name of the way in which the process gets the device, for the doctor and for messages."""
    requests: tuple[Mapping[str, Any], ...] = ()
    """Arguments of Docker's ``DeviceRequest``."""
    nodes: tuple[str, ...] = ()
    """Device nodes."""
    groups: tuple[int, ...] = ()
    """Numbers of the groups of this host that may use the device nodes."""
    libraries: tuple[tuple[str, str], ...] = ()
    """Files and folders of the driver, as pairs of path on this host and path inside."""
    image_has_libraries: bool = False
    """Images bring the libraries of the driver, because these work with kernel drivers of other versions."""
    system_files: tuple[str, ...] = ()
    """Folders of ``/sys`` about the device: a container sees them anyway, a private tree does not."""
    environment: Mapping[str, str] = field(default_factory=dict)

    def joined(self, other: DeviceAccess) -> DeviceAccess:
        """Return what a process needs that is to see the devices of both; values that differ are lists of devices."""
        requests = list(self.requests)
        for request in other.requests:
            same = next((one for one in requests if {**one, "device_ids": ()} == {**request, "device_ids": ()}), None)
            if same is None:
                requests.append(request)
            else:
                joined = {**same, "device_ids": [*same["device_ids"], *request["device_ids"]]}
                requests[requests.index(same)] = joined
        both = self.environment.keys() & other.environment.keys()
        different = {name for name in both if self.environment[name] != other.environment[name]}
        lists = {name: f"{self.environment[name]},{other.environment[name]}" for name in different}
        return DeviceAccess(
            way=self.way if self.way == other.way else NO_ACCESS,
            requests=tuple(requests),
            nodes=tuple(dict.fromkeys((*self.nodes, *other.nodes))),
            groups=tuple(dict.fromkeys((*self.groups, *other.groups))),
            libraries=tuple(dict.fromkeys((*self.libraries, *other.libraries))),
            image_has_libraries=self.image_has_libraries and other.image_has_libraries,
            system_files=tuple(dict.fromkeys((*self.system_files, *other.system_files))),
            environment={**self.environment, **other.environment, **lists},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CostFigures:
    """Approximate durations of the parts of a session on a platform's devices, in seconds."""

    start_s: float
    """Time before the first call and after the last one."""
    call_s: float
    """One verification call with its inputs, reference and comparison."""
    timed_call_s: float
    """One timed call with its inputs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SanitizerReport:
    """Result of one tool of a sanitizer, read from its output."""

    finding: str = ""
    """The first finding; empty if there is none."""
    status: Status = Status.PASSED
    """Status of a candidate with this finding."""


class Platform(Protocol):
    """The host half of a platform. It changes a device only through the object that :meth:`settings` returns.

    ``versions`` are those of a toolchain by package: ``torch``, ``triton``, and the toolkit under the name that the
    platform gives it.
    """

    __file__: str | None
    """File of the package; the inside half is the package ``inside`` beside it."""
    VENDOR: str
    """Name in records, and another name for the platform in matrix files."""
    TITLE: str
    """Kind of device in messages, such as ``CPU``."""
    IS_ACCELERATOR: bool
    """Devices are separate from the host's processors: a process sees only one and is alone on it, and the device is
    checked after the cell."""
    PROVEN: bool
    """True once the platform's code was shown to work on real devices, by ``kernel-matrix platform prove``. Records say
    it, and times of an unproven platform are graded C at best."""
    LINK_KINDS: tuple[str, ...]
    """Kinds of link between devices, the best first; empty if devices are not linked."""
    NEEDS_IMAGES: bool
    """Toolchains run only from images, not from the packages beside the runner."""
    SANITIZER: str
    """Module inside that runs a worker under a sanitizer of device code; empty if there is none."""
    COST: CostFigures
    ACCESS_ADVICE: str
    """Advice if a device cannot be given to a container."""
    DAEMON_ERRORS: tuple[tuple[str, str, str], ...]
    """(text in a container daemon's error, meaning, next step)."""
    HIDDEN: Mapping[str, str]
    """Environment that hides all devices from a container, because images may ask for all of them."""
    HIDDEN_IN_PROCESS: Mapping[str, str]
    """Environment that hides all devices from a process outside containers."""
    CACHES: Mapping[str, str]
    """Environment variable → name of the folder for the cache of a driver or compiler."""
    PROGRAM_FOLDERS: tuple[str, ...]
    """Folders of the toolkit's programs on this host."""
    SHARING_SERVER: str
    """Program, named as in ``/proc/<pid>/comm``, that runs work of several processes on a device; empty for none."""
    DIVISION: str
    """What divides a device into parts, as its users call it."""
    ADVICE: Mapping[str, str]
    """Mode that ``kernel-matrix doctor`` checks (``mig``, ``mps``, ``compute_mode``, …) → how to change it."""

    def language_skip_reason(self, language: Language, compute_capability: str | None) -> str | None:
        """Return why ``language`` does not run on such a device; ``None`` if it does."""
        ...

    def dtype_skip_reason(self, dtype: Dtype, language: Language, compute_capability: str | None) -> str | None:
        """Return why ``language`` does not compute correctly in ``dtype`` on such a device; ``None`` if it does."""
        ...

    def code_skip_reason(
        self, versions: Mapping[str, str], compute_capability: str | None, driver: str | None
    ) -> str | None:
        """Return why the toolchain's PyTorch has no code that such a device can run; ``None`` if it has."""
        ...

    def driver_skip_reason(self, versions: Mapping[str, str], gpu: Gpu) -> str | None:
        """Return why the driver of ``gpu`` cannot run the toolchain; ``None`` if it can."""
        ...

    def driver_note(self, versions: Mapping[str, str], driver: str | None) -> str | None:
        """Return what does not work although the driver runs the toolchain; ``None`` if everything works."""
        ...

    def toolchain_gaps(self, versions: Mapping[str, str]) -> tuple[str, ...]:
        """Return one sentence for each unknown property of a toolchain; no cell is refused because of them."""
        ...

    def compiles(self, language: Language, versions: Mapping[str, str]) -> bool:
        """Return whether the toolchain can compile ``language`` for a device that is not present."""
        ...

    def compile_target(self, compute_capability: str | None) -> str:
        """Return the target that candidates are compiled for; empty if compilers get none."""
        ...

    def compile_limits(self, compute_capability: str | None) -> Mapping[str, int]:
        """Return ``shared_bytes`` and ``multiprocessors`` of such a device, if they are known."""
        ...

    def launch_failure_reason(self, kernel: KernelCode) -> str:
        """Return why a compiled kernel could not be launched; empty if no reason is known."""
        ...

    def occupancy(self, kernel: KernelCode) -> float | None:
        """Return the share of a multiprocessor's threads that a compiled kernel can occupy at most.

        Registers, shared memory and the size of a block limit it. ``None`` if they, or the device, are not known.
        """
        ...

    def sanitizer_report(self, tool: str, log: str) -> SanitizerReport | None:
        """Return what ``tool`` of the sanitizer found; ``None`` if it did not run to its end.

        Args:
            tool: name of the tool.
            log: tail of the output of the process that ran under it.
        """
        ...

    def compile_settings(self, gpu: Gpu) -> Mapping[str, str]:
        """Return environment variables of every process of a cell on ``gpu``, the builder included."""
        ...

    def container_access(self, info: Mapping[str, Any], gpu: Gpu | None = None) -> DeviceAccess:
        """Return the way in which a daemon can give a device to a container.

        Args:
            info: the daemon's answer to ``/info``.
            gpu: the device; ``None`` for any device of the platform.
        """
        ...

    def process_access(self, gpu: Gpu) -> DeviceAccess:
        """Return what a process of this host needs to see ``gpu`` and no other device of the platform."""
        ...

    def examine_driver(self, inventory: PlatformInventory) -> Iterable[CheckResult]:
        """Check the driver, its bindings and each device, for the doctor."""
        ...

    def examine_access(self, info: Mapping[str, Any], ways: Mapping[Gpu, str]) -> Iterable[CheckResult]:
        """Check the access of containers to devices, for the doctor.

        Args:
            info: the daemon's answer to ``/info``.
            ways: device → name of its way into a container.
        """
        ...

    def examine_toolkit(self, ways: Mapping[Gpu, str]) -> Iterable[CheckResult]:
        """Check the program that gives devices to containers, for the doctor."""
        ...

    def interprets(self, language: Language) -> bool:
        """Return whether an interpreter replaces the compiler of ``language`` on this platform."""
        ...

    def local_compiler(self) -> str:
        """Return a text that changes when this host's compiler of the platform is replaced or updated."""
        ...

    def inventory(self) -> PlatformInventory:
        """Return all devices of this platform; an absent driver is a ``reason``, not an error."""
        ...

    def opened(self) -> AbstractContextManager[None]:
        """Keep the driver's library open; calls nest.

        Raises:
            kernel_matrix.errors.InfrastructureError: if it cannot be opened.
        """
        ...

    def processes(self, gpu: Gpu) -> Sequence[int]:
        """Return the host PIDs with a context on ``gpu``, ascending.

        Raises:
            kernel_matrix.errors.GpuLostError: if the device no longer answers.
            kernel_matrix.errors.InfrastructureError: if the driver cannot list them.
        """
        ...

    def snapshot(self, gpu: Gpu) -> dict[str, float | int | str | None]:
        """Read clocks, power, temperature, used memory and event reasons; a value is ``None`` if not supported.

        Raises:
            kernel_matrix.errors.InfrastructureError: if the device does not answer at all.
        """
        ...

    def clocks(self, gpu: Gpu) -> tuple[int | None, int | None]:
        """Read SM and memory clock in MHz; ``None`` if there is no such clock, or the driver does not report it.

        Raises:
            kernel_matrix.errors.InfrastructureError: if the device does not answer at all.
        """
        ...

    def details(self, gpu: Gpu) -> DeviceDetails:
        """Read bus, VBIOS, ECC, MIG, power limits, supported clocks and more.

        Raises:
            kernel_matrix.errors.InfrastructureError: if the device does not answer at all.
        """
        ...

    def modes(self, gpu: Gpu) -> DeviceModes:
        """Read the present state of MIG, MPS, compute mode, persistence and ECC.

        Raises:
            kernel_matrix.errors.InfrastructureError: if the device does not answer at all.
        """
        ...

    def clock_choices(self, gpu: Gpu) -> ClockChoices:
        """Return the clocks that ``gpu`` can be locked to.

        Raises:
            kernel_matrix.errors.InfrastructureError: if the device does not answer at all.
        """
        ...

    def sampler(self, gpu: Gpu) -> Callable[[], TelemetrySample] | None:
        """Return a function that reads ``gpu`` fast enough for many samples a second; ``None`` without telemetry (CPU).

        The function raises :class:`kernel_matrix.errors.GpuLostError` if the device no longer answers, and may be
        called only while the library is :meth:`opened`.
        """
        ...

    def settings(self) -> DeviceSettings | None:
        """Return the object that changes settings of this platform's devices; ``None`` if there are no settings."""
        ...


class DeviceSettings(Protocol):
    """The few settings that this program changes. Every call first checks that this host permits changes.

    Each method raises :class:`kernel_matrix.errors.GpuSettingError`, with ``permitted`` False if this host or the
    driver forbids the change, and ``supported`` False if the device does not offer it (NVML: not supported, function
    not found). It raises :class:`kernel_matrix.errors.GpuLostError` if the device no longer answers.
    """

    def lock_sm_clock(self, gpu: Gpu, megahertz: int | None) -> None:
        """Lock the SM clock; ``None`` means the driver's symbolic TDP clock."""
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
        """Set the rule for the processes that may open the device."""
        ...
