"""Inside half of the CUDA platform, for judge, workers and builders."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Set, Tuple

from kernel_matrix.inside.platform import Activity, DeviceHealth, EnergyCounter, Sensors

if TYPE_CHECKING:
    from kernel_matrix.inside.build.call_forms import CallForm, CompiledAhead, CompileTarget
    from kernel_matrix.inside.memory import Arena, OutputPool
    from kernel_matrix.inside.wire import KernelCode
    from kernel_matrix.model.enums import Dtype
    from kernel_matrix.model.messages import AnchorTimes, ClockProbeReading

TORCH_DEVICE = "cuda"
IS_ACCELERATOR = True
NEEDS_DEVICE = ("No CUDA GPUs are available", "Found no NVIDIA driver", "no CUDA-capable device")
COLLECTIVES = "nccl"

# Each module is imported by the function that needs it, because most of them import torch.
# ruff: noqa: PLC0415


def transport() -> str:
    """Return the name of the way in which memory is shared."""
    from kernel_matrix.platforms.cuda.inside import arenas

    return arenas.transport()


def create_arena(nbytes: int) -> Arena:
    """Allocate device memory that can be shared, or a pair of buffers if staging was chosen."""
    from kernel_matrix.platforms.cuda.inside import arenas

    return arenas.create_arena(nbytes)


def open_arena(descriptor: int, nbytes: int) -> Arena:
    """Map the memory that the judge shares."""
    from kernel_matrix.platforms.cuda.inside import arenas

    return arenas.open_arena(descriptor, nbytes)


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
    import torch

    from kernel_matrix.platforms.cuda.inside import arenas

    free, total = torch.cuda.mem_get_info()
    left = arenas.limit_beside()
    most = total if left is None else left
    return max(0, min(int(free), most - int(torch.cuda.memory_reserved()))) + _idle_bytes()


def release_memory(share: float = 0.0) -> None:
    """Empty torch's cache if it holds more than ``share`` of the device's memory, or if less than that is free."""
    import torch

    free, total = torch.cuda.mem_get_info()
    if not share or _idle_bytes() > total * share or free < total * share:
        torch.cuda.empty_cache()


def device_memory() -> Optional[Tuple[int, int]]:
    """Return free and total memory, as the driver counts them over all processes."""
    import torch

    free, total = torch.cuda.mem_get_info()
    return int(free), int(total)


def own_memory() -> int:
    """Return what torch has reserved, and the arenas."""
    import torch

    from kernel_matrix.platforms.cuda.inside import arenas

    return int(torch.cuda.memory_reserved()) + arenas.mapped_bytes()


def take_peak() -> Optional[int]:
    """Return the peak of torch's allocator beyond what it has allocated now, and start a new one."""
    import torch

    peak = max(0, int(torch.cuda.max_memory_allocated() - torch.cuda.memory_allocated()))
    torch.cuda.reset_peak_memory_stats()
    return peak


def limit_memory(nbytes: int) -> None:
    """Limit torch's allocator to what arenas leave of ``nbytes``, now and whenever they change."""
    from kernel_matrix.platforms.cuda.inside import arenas

    arenas.limit_memory(nbytes)


def judge_settings() -> Mapping[str, str]:
    """Return settings with which memory that was freed in pieces can be used for larger tensors."""
    return {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}


def _idle_bytes() -> int:
    import torch

    return int(torch.cuda.memory_reserved() - torch.cuda.memory_allocated())


def cache_bytes() -> int:
    """Return the size of the L2 cache; 64 MiB if torch does not report it."""
    import torch

    return int(getattr(torch.cuda.get_device_properties(0), "L2_cache_size", 0)) or (64 << 20)


_used_devices: Set[int] = set()
"""Devices that :func:`on_device` has chosen."""


@contextmanager
def on_device(rank: int) -> Iterator[None]:
    """Make the device of ``rank`` torch's current one, inside."""
    import torch

    _used_devices.add(rank)
    with torch.cuda.device(rank):
        yield


def missing_path(ranks: int) -> str:
    """Ask the driver for each pair of devices."""
    import torch

    pairs = [(one, other) for one in range(ranks) for other in range(ranks) if one != other]
    missing = [pair for pair in pairs if not torch.cuda.can_device_access_peer(*pair)]
    return "GPU {} cannot reach the memory of GPU {}".format(*missing[0]) if missing else ""


def open_device() -> None:
    """Create torch's context."""
    import torch

    torch.zeros(1, device=TORCH_DEVICE)


def synchronize() -> None:
    """Wait for all streams of the current device, and of those that :func:`on_device` has chosen."""
    import torch

    torch.cuda.synchronize()
    for device in _used_devices - {torch.cuda.current_device()}:
        torch.cuda.synchronize(device)


def make_timer() -> Callable[[Callable[[], Any]], Tuple[Any, int]]:
    """Return a function that times a call with two CUDA events."""
    from kernel_matrix.platforms.cuda.inside.calls import make_timer as make

    return make()


def capture(function: Callable[[], Any]) -> Optional[Callable[[], Any]]:
    """Capture a call as a CUDA graph; return None if that fails."""
    from kernel_matrix.platforms.cuda.inside.calls import capture as captured

    return captured(function)


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


def check_health(seconds: float) -> DeviceHealth:
    """Compute known answers on every SM, and write patterns to memory and read them back."""
    from kernel_matrix.platforms.cuda.inside.device_health import check_gpu

    return check_gpu(seconds)


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


def product_sizes() -> Sequence[int]:
    """Return sizes of matrix products that fill every SM."""
    return (4096, 8192)


def buffer_bytes() -> int:
    """Return several times the L2 cache, at least a gibibyte, and no more than an eighth of the memory."""
    import torch

    memory = int(torch.cuda.get_device_properties(0).total_memory)
    return min(max(4 * cache_bytes(), 1 << 30), memory // 8) // 4 * 4


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
