"""Inside half of the platform of AMD GPUs, for judge, workers and builders.

Torch's build for ROCm gives these devices the name ``cuda``. No member has run on a real device yet.
"""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Callable, Iterable, Iterator, Mapping, Optional, Sequence

from kernel_matrix.inside.platform import Activity, DeviceHealth, EnergyCounter, Sensors
from kernel_matrix.inside.platform_defaults import compiler_settings as compiler_settings
from kernel_matrix.inside.platform_defaults import judge_settings as judge_settings
from kernel_matrix.inside.platform_defaults import open_pool as open_pool
from kernel_matrix.inside.platform_defaults import pool_bytes as pool_bytes
from kernel_matrix.inside.torch_gpu import *  # noqa: F403  # members that every GPU has through torch
from kernel_matrix.inside.torch_gpu import copied_bytes
from kernel_matrix.platforms.rocm.inside.build.machine_code import kernels_in as kernels_in

if TYPE_CHECKING:
    from kernel_matrix.inside.build.call_forms import CallForm, CompiledAhead, CompileTarget
    from kernel_matrix.inside.memory import Arena
    from kernel_matrix.model.enums import Dtype
    from kernel_matrix.model.messages import AnchorTimes, ClockProbeReading

NEEDS_DEVICE = ("No HIP GPUs are available", "Found no NVIDIA driver")
COLLECTIVES = "nccl"

# Each module is imported by the function that needs it, because most of them import torch.
# ruff: noqa: PLC0415


def transport() -> str:
    """Return the name of the way in which memory is shared."""
    from kernel_matrix.platforms.rocm.inside.arenas import ARENAS

    return ARENAS.transport()


def create_arena(nbytes: int) -> Arena:
    """Allocate device memory that can be shared, or a pair of buffers if it cannot, or if staging was chosen."""
    from kernel_matrix.platforms.rocm.inside.arenas import ARENAS

    return ARENAS.create(nbytes)


def open_arena(descriptor: int, nbytes: int) -> Arena:
    """Map the memory that the judge shares."""
    from kernel_matrix.platforms.rocm.inside.arenas import ARENAS

    return ARENAS.open(descriptor, nbytes)


def free_bytes() -> Optional[int]:
    """Return what torch may still reserve plus the unused memory in its cache."""
    from kernel_matrix.platforms.rocm.inside.arenas import ARENAS

    return ARENAS.free_bytes()


def own_memory() -> int:
    """Return what torch has reserved, and the arenas."""
    from kernel_matrix.platforms.rocm.inside.arenas import ARENAS

    return ARENAS.own_bytes()


def limit_memory(nbytes: int) -> None:
    """Limit torch's allocator to what arenas leave of ``nbytes``, now and whenever they change."""
    from kernel_matrix.platforms.rocm.inside.arenas import ARENAS

    ARENAS.limit_memory(nbytes)


def cache_bytes() -> int:
    """Return the size of L2 and Infinity Cache."""
    from kernel_matrix.platforms.rocm.inside.caches import cache_bytes as known_bytes

    return known_bytes()


def record_activity() -> Callable[[], Iterable[Activity]]:
    """Start torch's profiler: AMD's own tracer must be configured before the runtime starts."""
    from kernel_matrix.inside.gpu_activity import record_activity as record

    return record()


def measure_clock(phase: str) -> Optional[ClockProbeReading]:
    """Count cycles of ``clock64`` per tick of ``wall_clock64`` on the compute units."""
    from kernel_matrix.platforms.rocm.inside.clock_probe import measure_clock as measure

    return measure(phase)


def measure_anchor(phase: str) -> Optional[AnchorTimes]:
    """Time a kernel that computes and one that copies."""
    from kernel_matrix.platforms.rocm.inside.anchor import measure_anchor as measure

    return measure(phase)


def check_health(seconds: float, devices: int) -> DeviceHealth:
    """Compute known answers on every compute unit, and write patterns to memory and read them back."""
    from kernel_matrix.platforms.rocm.inside.device_health import check_gpus

    return check_gpus(seconds, devices)


@contextmanager
def sensors(uuid: str) -> Iterator[Sensors]:
    """Open the sensors of AMD's management library."""
    from kernel_matrix.platforms.rocm.inside.sensors import sensors_of

    with sensors_of(uuid) as opened:
        yield opened


@contextmanager
def energy_counter(uuid: str) -> Iterator[EnergyCounter]:
    """Open the energy counter of AMD's management library."""
    from kernel_matrix.platforms.rocm.inside.sensors import energy_counter_of

    with energy_counter_of(uuid) as opened:
        yield opened


def describe() -> Mapping[str, Optional[str]]:
    """Read the name and the architecture of the device."""
    from kernel_matrix.platforms.rocm.inside.environment import describe as read

    return read()


def buffer_bytes() -> int:
    """Return several times the Infinity Cache, and no more than an eighth of the memory."""
    return copied_bytes(cache_bytes())


def compile_ahead(
    source: Path, entry: str, forms: Sequence[CallForm], dtype: Dtype, target: CompileTarget
) -> CompiledAhead:
    """Compile Triton kernels under a fake driver that only knows its target."""
    from kernel_matrix.platforms.rocm.inside.build.triton_target import compile_ahead as compile_all

    return compile_all(source, entry, forms, dtype, target)
