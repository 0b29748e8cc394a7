"""The inside half of a platform: what judge, workers and builders ask of the kind of device they run on.

It is a package ``inside`` below the platform's own, with the members of :class:`InsidePlatform`. Of all platforms only
the one of the cell is there, beside ``inside`` and ``model``. It may import the standard library, torch, triton and
:mod:`kernel_matrix.inside`; its ``__init__`` imports no torch, which a judge imports only when its sockets are open.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    ContextManager,
    Dict,
    Iterable,
    List,
    Mapping,
    Optional,
    Protocol,
    Sequence,
    Tuple,
)

from kernel_matrix.model.messages import AnchorTimes, ClockProbeReading
from kernel_matrix.model.protocols import protocol_members

if TYPE_CHECKING:
    from kernel_matrix.inside.build.call_forms import CallForm, CompiledAhead, CompileTarget
    from kernel_matrix.inside.memory import Arena, OutputPool
    from kernel_matrix.inside.wire import KernelCode
    from kernel_matrix.model.enums import Dtype

Activity = Tuple[str, int]
"""(name, nanoseconds on the device) of one kernel, copy or fill."""

Sensors = Callable[[], Tuple[int, int]]
"""Function that returns the core clock in MHz and the temperature in °C, or raises :class:`SensorError`."""

EnergyCounter = Callable[[], int]
"""Function that returns the millijoules that the device has taken since some moment, or raises :class:`SensorError`."""

STAGED_VARIABLE = "KERNEL_MATRIX_TRANSPORT"
"""Environment variable of the run, judge and workers; ``staged`` sends memory through the host."""


class DeviceError(RuntimeError):
    """A call of the device's driver failed, or there is no driver; ``code`` is the driver's, if it gave one."""

    def __init__(self, message: str, code: Optional[int] = None) -> None:
        super().__init__(message)
        self.code = code


class SensorError(RuntimeError):
    """The device's sensors are not here, or do not answer."""


@dataclass(frozen=True)
class DeviceHealth:
    """Result of a health check."""

    passed: Optional[bool]
    """``None``: the device could not be checked, which says nothing about it."""
    reason: str
    """Reason why it is not healthy, or could not be checked."""
    sm_mhz: Optional[float]
    """Median core clock under load; ``None`` if it cannot be read."""
    seconds: float
    """Duration of the check, seconds."""


class InsidePlatform(Protocol):
    """The members of a platform's package ``inside``. Every process sees one device."""

    TORCH_DEVICE: str
    """Device type that torch gives it."""
    IS_ACCELERATOR: bool
    """Calls run apart from the host's processors, return before they are done, and are timed by the device's clock."""
    NEEDS_DEVICE: Tuple[str, ...]
    """Texts of torch's errors when a source asks for the device while it is compiled without one."""

    COLLECTIVES: str
    """Backend of ``torch.distributed`` for calls of several ranks."""

    # ---- memory

    def transport(self) -> str:
        """Return the name of how tensors cross between judge and worker, for the record."""
        ...

    def create_arena(self, nbytes: int) -> Arena:
        """Return new memory of the judge's that can be lent to a worker."""
        ...

    def open_arena(self, descriptor: int, nbytes: int) -> Arena:
        """Return the memory behind a descriptor that the judge sent."""
        ...

    def pool_bytes(self, outputs: Sequence[int], calls: int) -> int:
        """Return how much memory a pool needs for the outputs of ``calls`` calls; 0 where there are no pools.

        Args:
            outputs: Bytes of each output of a call.
            calls: Number of calls whose outputs are kept.
        """
        ...

    def open_pool(self, arena: Arena) -> Optional[OutputPool]:
        """Return a pool that allocates in ``arena``; None where torch cannot allocate in given memory."""
        ...

    def free_bytes(self) -> Optional[int]:
        """Return how much memory torch can still have on the device; None where it has none of its own."""
        ...

    def release_memory(self, share: float = 0.0) -> None:
        """Give back what torch keeps without use, if it is more than ``share`` of all, or if less than that is free."""
        ...

    def device_memory(self) -> Optional[Tuple[int, int]]:
        """Return the device's free memory and all of it, in bytes, by the driver; None where it has none of its own."""
        ...

    def own_memory(self) -> int:
        """Return how much of the device's memory this process has taken, without its context; 0 if it has none."""
        ...

    def take_peak(self) -> Optional[int]:
        """Return the most that torch had in use since it was last asked, less what is in use now; None if unknown."""
        ...

    def limit_memory(self, nbytes: int) -> None:
        """Limit what torch takes in this process to ``nbytes``; code that calls the driver itself is not limited."""
        ...

    def judge_settings(self) -> Mapping[str, str]:
        """Return environment variables that a judge sets before it opens the device: how torch allocates memory."""
        ...

    def cache_bytes(self) -> int:
        """Return the size of the cache that is flushed before a cold call; 0 where nothing is flushed."""
        ...

    # ---- several devices, one for each rank

    def on_device(self, rank: int) -> ContextManager[None]:
        """Let everything in this context, of this thread, use the device of ``rank``; outside it is that of rank 0."""
        ...

    def missing_path(self, ranks: int) -> str:
        """Return which of these devices cannot reach each other's memory; empty if all can."""
        ...

    # ---- calls

    def open_device(self) -> None:
        """Open the device; before, nothing of this process is on it."""
        ...

    def synchronize(self) -> None:
        """Wait until everything queued on the device is done."""
        ...

    def make_timer(self) -> Callable[[Callable[[], Any]], Tuple[Any, int]]:
        """Return a function that calls another one and returns its result and the time on the device, nanoseconds."""
        ...

    def capture(self, function: Callable[[], Any]) -> Optional[Callable[[], Any]]:
        """Return a function that replays what ``function`` queues; None where it cannot be captured.

        Its outputs are the same memory at every replay.
        """
        ...

    def record_activity(self) -> Callable[[], Iterable[Activity]]:
        """Start to record what the device runs; returns the function that stops and returns the records."""
        ...

    # ---- the device itself

    def measure_clock(self, phase: str) -> Optional[ClockProbeReading]:
        """Measure the core clock from inside a kernel; None where there is none.

        Raises:
            DeviceError: If it cannot be measured.
        """
        ...

    def measure_anchor(self, phase: str) -> Optional[AnchorTimes]:
        """Time two fixed kernels; None where there are none.

        Raises:
            DeviceError: If they cannot run.
        """
        ...

    def check_health(self, seconds: float, devices: int) -> DeviceHealth:
        """Have each of ``devices`` compute known answers; read its clock over ``seconds``.

        Never raises for a sick device.
        """
        ...

    def sensors(self, uuid: str) -> ContextManager[Sensors]:
        """Open the sensors of the device with this UUID, as long as inside.

        Raises:
            SensorError: If there are none.
        """
        ...

    def energy_counter(self, uuid: str) -> ContextManager[EnergyCounter]:
        """Open the energy counter of the device with this UUID, as long as inside.

        Raises:
            SensorError: If there is none.
        """
        ...

    def describe(self) -> Mapping[str, Optional[str]]:
        """Return fields of :class:`~kernel_matrix.model.messages.InsideEnvironment` that only the platform knows."""
        ...

    def product_sizes(self) -> Sequence[int]:
        """Return the sizes of square matrices whose product is timed to learn the peak rate."""
        ...

    def buffer_bytes(self) -> int:
        """Return the size of the buffer whose copy is timed to learn the peak bandwidth: more than any cache holds."""
        ...

    # ---- compilers

    def compiler_settings(self, remarks: Optional[Path] = None) -> Dict[str, str]:
        """Return environment variables for compilers, the same where something is built and where it is used.

        Args:
            remarks: File for what the compiler says about kernels; None where nothing is built.
        """
        ...

    def kernels_in(self, folder: Path, log: str) -> List[KernelCode]:
        """Return what compilers made of each kernel, from their cache in ``folder`` and what they said in ``log``."""
        ...

    def compile_ahead(
        self, source: Path, entry: str, forms: Sequence[CallForm], dtype: Dtype, target: CompileTarget
    ) -> CompiledAhead:
        """Compile all that calls of the candidate in ``source`` would compile on ``target``, without a device."""
        ...


@lru_cache(maxsize=None)
def load_platform(name: str) -> InsidePlatform:
    """Import the inside half of the platform ``name``, which every sandbox shows at the same place.

    Raises:
        ImportError: It cannot be imported, or lacks a member of :class:`InsidePlatform`. Judge, worker and builder load
            it before any candidate code, so that a candidate is not blamed for it.
    """
    platform: InsidePlatform = importlib.import_module(f"kernel_matrix.platforms.{name}.inside")
    missing = [member for member in protocol_members(InsidePlatform) if not hasattr(platform, member)]
    if missing:
        raise ImportError(f"the inside half of the platform {name!r} lacks {', '.join(missing)}")
    return platform
