"""Inside half of the CUDA platform, for judge, workers and builders."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence

from kernel_matrix.inside.platform import Activity, DeviceHealth, EnergyCounter, Sensors
from kernel_matrix.inside.torch_gpu import *  # noqa: F403  # members that every GPU has through torch
from kernel_matrix.inside.torch_gpu import copied_bytes

if TYPE_CHECKING:
    from kernel_matrix.inside.build.call_forms import CallForm, CompiledAhead, CompileTarget
    from kernel_matrix.inside.memory import Arena, OutputPool
    from kernel_matrix.inside.wire import KernelCode
    from kernel_matrix.model.enums import Dtype
    from kernel_matrix.model.messages import AnchorTimes, ClockProbeReading

NEEDS_DEVICE = ("No CUDA GPUs are available", "Found no NVIDIA driver", "no CUDA-capable device")

# Each module is imported by the function that needs it, because most of them import torch.
# ruff: noqa: PLC0415


def transport() -> str:
    """Return the name of the way in which memory is shared."""
    from kernel_matrix.platforms.cuda.inside.arenas import ARENAS

    return ARENAS.transport()


def create_arena(nbytes: int) -> Arena:
    """Allocate device memory that can be shared, or a pair of buffers if staging was chosen."""
    from kernel_matrix.platforms.cuda.inside.arenas import ARENAS

    return ARENAS.create(nbytes)


def open_arena(descriptor: int, nbytes: int) -> Arena:
    """Map the memory that the judge shares."""
    from kernel_matrix.platforms.cuda.inside.arenas import ARENAS

    return ARENAS.open(descriptor, nbytes)


def pool_bytes(outputs: Sequence[int], calls: int) -> int:
    """Return what outputs take in torch's allocator, and room for what calls need besides them."""
    from kernel_matrix.platforms.cuda.inside import output_pool

    return output_pool.pool_bytes(outputs, calls)


def open_pool(arena: Arena) -> Optional[OutputPool]:
    """Return a pool of torch's allocator in the arena."""
    from kernel_matrix.platforms.cuda.inside import output_pool

    return output_pool.open_pool(arena)


def free_bytes() -> Optional[int]:
    """Return what torch may still reserve plus the unused memory in its cache."""
    from kernel_matrix.platforms.cuda.inside.arenas import ARENAS

    return ARENAS.free_bytes()


def own_memory() -> int:
    """Return what torch has reserved, and the arenas."""
    from kernel_matrix.platforms.cuda.inside.arenas import ARENAS

    return ARENAS.own_bytes()


def limit_memory(nbytes: int) -> None:
    """Limit torch's allocator to what arenas leave of ``nbytes``, now and whenever they change."""
    from kernel_matrix.platforms.cuda.inside.arenas import ARENAS

    ARENAS.limit_memory(nbytes)


def judge_settings() -> Mapping[str, str]:
    """Return settings with which memory that was freed in pieces can be used for larger tensors."""
    return {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}


def cache_bytes() -> int:
    """Return the size of the L2 cache; 64 MiB if torch does not report it."""
    import torch

    return int(getattr(torch.cuda.get_device_properties(0), "L2_cache_size", 0)) or (64 << 20)


def record_activity() -> Callable[[], Iterable[Activity]]:
    """Start to record activity with CUPTI, which sees every stream of the process."""
    from kernel_matrix.platforms.cuda.inside.activity import record_activity as record

    return record()


def measure_clock(phase: str) -> Optional[ClockProbeReading]:
    """Count ticks of ``clock64`` per nanosecond of ``globaltimer`` on every SM."""
    from kernel_matrix.platforms.cuda.inside.clock_probe import measure_clock as measure

    return measure(phase)


def measure_anchor(phase: str) -> Optional[AnchorTimes]:
    """Time a kernel that computes and one that copies."""
    from kernel_matrix.platforms.cuda.inside.anchor import measure_anchor as measure

    return measure(phase)


def check_health(seconds: float, devices: int) -> DeviceHealth:
    """Compute known answers on every SM, and write patterns to memory and read them back."""
    from kernel_matrix.platforms.cuda.inside.device_health import check_gpus

    return check_gpus(seconds, devices)


@contextmanager
def sensors(uuid: str) -> Iterator[Sensors]:
    """Open the sensors of NVML."""
    from kernel_matrix.platforms.cuda.inside.nvml import sensors_of

    with sensors_of(uuid) as opened:
        yield opened


@contextmanager
def energy_counter(uuid: str) -> Iterator[EnergyCounter]:
    """Open the energy counter of NVML, which GPUs have since Volta."""
    from kernel_matrix.platforms.cuda.inside.nvml import energy_counter_of

    with energy_counter_of(uuid) as opened:
        yield opened


def describe() -> Mapping[str, Optional[str]]:
    """Read the versions of driver, cuDNN and nvcc, and the compute capability."""
    from kernel_matrix.platforms.cuda.inside.environment import describe as read

    return read()


def buffer_bytes() -> int:
    """Return several times the L2 cache, at least a gibibyte, and no more than an eighth of the memory."""
    return copied_bytes(cache_bytes())


def compiler_settings(remarks: Optional[Path] = None) -> Dict[str, str]:
    """Return settings that replace nvcc by a wrapper, which keeps the remarks of ptxas."""
    from kernel_matrix.platforms.cuda.inside.build.nvcc_wrapper import LOG, wrapper_settings

    building = {} if remarks is None else {LOG: str(remarks), "TRITON_DUMP_PTXAS_LOG": "1"}
    return {**wrapper_settings(), **building}


def kernels_in(folder: Path, log: str) -> List[KernelCode]:
    """Read the kernels in the machine code that nvcc and Triton wrote."""
    from kernel_matrix.platforms.cuda.inside.build.machine_code import kernels_in as read

    return read(folder, log)


def compile_ahead(
    source: Path, entry: str, forms: Sequence[CallForm], dtype: Dtype, target: CompileTarget
) -> CompiledAhead:
    """Compile Triton kernels under a fake driver that only knows its target."""
    from kernel_matrix.platforms.cuda.inside.build.triton_target import compile_ahead as compile_all

    return compile_all(source, entry, forms, dtype, target)
