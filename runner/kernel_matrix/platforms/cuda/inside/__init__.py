"""NVIDIA GPUs, as judge, workers and builders see them."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple

from kernel_matrix.inside.platform import Activity, DeviceHealth, Sensors

if TYPE_CHECKING:
    from kernel_matrix.inside.build.call_forms import CallForm, CompiledAhead, CompileTarget
    from kernel_matrix.inside.memory import Arena
    from kernel_matrix.inside.wire import KernelCode
    from kernel_matrix.model.enums import Dtype
    from kernel_matrix.model.messages import AnchorTimes, ClockProbeReading

TORCH_DEVICE = "cuda"
IS_ACCELERATOR = True
NEEDS_DEVICE = ("No CUDA GPUs are available", "Found no NVIDIA driver", "no CUDA-capable device")

# Each module is imported where it is asked for: most of them bring torch.
# ruff: noqa: PLC0415


def transport() -> str:
    """Name how memory is shared."""
    from kernel_matrix.platforms.cuda.inside import arenas

    return arenas.transport()


def create_arena(nbytes: int) -> Arena:
    """Allocate device memory that can be shared, or a pair of buffers where staging was chosen."""
    from kernel_matrix.platforms.cuda.inside import arenas

    return arenas.create_arena(nbytes)


def open_arena(descriptor: int, nbytes: int) -> Arena:
    """Map what the judge shares."""
    from kernel_matrix.platforms.cuda.inside import arenas

    return arenas.open_arena(descriptor, nbytes)


def free_bytes() -> Optional[int]:
    """Add what torch keeps without using it to what the driver has left."""
    import torch

    free, _total = torch.cuda.mem_get_info()
    return int(free) + _idle_bytes()


def release_memory(share: float = 0.0) -> None:
    """Empty torch's cache of allocations, if it holds more than ``share`` of the device's memory."""
    import torch

    if not share or _idle_bytes() > torch.cuda.get_device_properties(0).total_memory * share:
        torch.cuda.empty_cache()


def _idle_bytes() -> int:
    import torch

    return int(torch.cuda.memory_reserved() - torch.cuda.memory_allocated())


def cache_bytes() -> int:
    """Return the size of the L2 cache; 64 MiB where torch does not tell it."""
    import torch

    return int(getattr(torch.cuda.get_device_properties(0), "L2_cache_size", 0)) or (64 << 20)


def open_device() -> None:
    """Create torch's context."""
    import torch

    torch.zeros(1, device=TORCH_DEVICE)


def synchronize() -> None:
    """Wait for all streams."""
    import torch

    torch.cuda.synchronize()


def make_timer() -> Callable[[Callable[[], Any]], Tuple[Any, int]]:
    """Time calls by two events."""
    from kernel_matrix.platforms.cuda.inside.calls import make_timer as make

    return make()


def capture(function: Callable[[], Any]) -> Optional[Callable[[], Any]]:
    """Capture a CUDA graph."""
    from kernel_matrix.platforms.cuda.inside.calls import capture as captured

    return captured(function)


def record_activity() -> Callable[[], Iterable[Activity]]:
    """Ask CUPTI, which sees every stream of the process."""
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
    """Work out known answers on every SM and write patterns through memory."""
    from kernel_matrix.platforms.cuda.inside.device_health import check_gpu

    return check_gpu(seconds)


@contextmanager
def sensors(uuid: str) -> Iterator[Sensors]:
    """Ask NVML."""
    from kernel_matrix.platforms.cuda.inside.nvml import sensors_of

    with sensors_of(uuid) as opened:
        yield opened


def describe() -> Mapping[str, Optional[str]]:
    """Read the versions of driver, cuDNN and nvcc, and the compute capability."""
    from kernel_matrix.platforms.cuda.inside.environment import describe as read

    return read()


def product_sizes() -> Sequence[int]:
    """Return sizes that fill every SM."""
    return (4096, 8192)


def buffer_bytes() -> int:
    """Return several times the L2 cache, at least a gibibyte, and no more than an eighth of the memory."""
    import torch

    memory = int(torch.cuda.get_device_properties(0).total_memory)
    return min(max(4 * cache_bytes(), 1 << 30), memory // 8) // 4 * 4


def compiler_settings(remarks: Optional[Path] = None) -> Dict[str, str]:
    """Put a stand-in before nvcc that keeps what ptxas says."""
    from kernel_matrix.platforms.cuda.inside.build.nvcc_wrapper import LOG, stand_in

    building = {} if remarks is None else {LOG: str(remarks), "TRITON_DUMP_PTXAS_LOG": "1"}
    return {**stand_in(), **building}


def kernels_in(folder: Path, log: str) -> List[KernelCode]:
    """Read the machine code that nvcc and Triton left."""
    from kernel_matrix.platforms.cuda.inside.build.machine_code import kernels_in as read

    return read(folder, log)


def compile_ahead(
    source: Path, entry: str, forms: Sequence[CallForm], dtype: Dtype, target: CompileTarget
) -> CompiledAhead:
    """Have Triton compile under a driver that only names its target."""
    from kernel_matrix.platforms.cuda.inside.build.triton_aot import compile_ahead as compile_all

    return compile_all(source, entry, forms, dtype, target)
