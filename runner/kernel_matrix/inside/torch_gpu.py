"""Members of :class:`~kernel_matrix.inside.platform.InsidePlatform` for every GPU that torch knows as ``cuda``.

That is the name of NVIDIA GPUs in torch, and of AMD GPUs in its builds for ROCm. A platform's ``inside`` imports these
members, and defines those about its driver.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Callable, Iterator, Optional, Sequence, Set, Tuple

__all__ = [
    "COLLECTIVES",
    "IS_ACCELERATOR",
    "TORCH_DEVICE",
    "capture",
    "device_memory",
    "make_timer",
    "missing_path",
    "on_device",
    "open_device",
    "product_sizes",
    "release_memory",
    "synchronize",
    "take_peak",
]

TORCH_DEVICE = "cuda"
IS_ACCELERATOR = True
COLLECTIVES = "nccl"

_used_devices: Set[int] = set()
"""Devices that :func:`on_device` has chosen."""

# A judge imports torch only when its sockets are open.
# ruff: noqa: PLC0415


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


def take_peak() -> Optional[int]:
    """Return the peak of torch's allocator beyond what it has allocated now, and start a new one."""
    import torch

    peak = max(0, int(torch.cuda.max_memory_allocated() - torch.cuda.memory_allocated()))
    torch.cuda.reset_peak_memory_stats()
    return peak


def open_device() -> None:
    """Create torch's context, and make it current in this thread."""
    import torch

    torch.cuda.init()
    torch.zeros(1, device=TORCH_DEVICE)


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


def synchronize() -> None:
    """Wait for all streams of the current device, and of those that :func:`on_device` has chosen."""
    import torch

    torch.cuda.synchronize()
    for device in _used_devices - {torch.cuda.current_device()}:
        torch.cuda.synchronize(device)


def make_timer() -> Callable[[Callable[[], Any]], Tuple[Any, int]]:
    """Return a function that times a call with two events."""
    from kernel_matrix.inside.gpu_calls import make_timer as make

    return make()


def capture(function: Callable[[], Any]) -> Optional[Callable[[], Any]]:
    """Capture a call as a graph; return None if that fails."""
    from kernel_matrix.inside.gpu_calls import capture as captured

    return captured(function)


def product_sizes() -> Sequence[int]:
    """Return sizes of matrix products that fill every multiprocessor."""
    return (4096, 8192)


def free_bytes_within(most: Optional[int]) -> int:
    """Return what torch may still reserve plus the unused memory in its cache.

    Args:
        most: Bytes that torch may have in all; None without a limit.
    """
    import torch

    free, total = torch.cuda.mem_get_info()
    limit = total if most is None else most
    return max(0, min(int(free), limit - int(torch.cuda.memory_reserved()))) + _idle_bytes()


def reserved_bytes() -> int:
    """Return what torch has taken of the device's memory."""
    import torch

    return int(torch.cuda.memory_reserved())


def limit_torch(nbytes: int, device: int) -> None:
    """Limit what torch takes of the memory of ``device``."""
    import torch

    total = torch.cuda.get_device_properties(device).total_memory
    torch.cuda.set_per_process_memory_fraction(min(1.0, nbytes / total), device)


def copied_bytes(cache_bytes: int) -> int:
    """Return several times ``cache_bytes``, at least a gibibyte, and no more than an eighth of the memory."""
    import torch

    memory = int(torch.cuda.get_device_properties(0).total_memory)
    return min(max(4 * cache_bytes, 1 << 30), memory // 8) // 4 * 4


def tensor_at(owner: Any, address: int, nbytes: int) -> Any:
    """Return device memory as a tensor (uint8, 1-D) that keeps ``owner`` as long as there are views of it."""
    import torch

    owner.__cuda_array_interface__ = {"shape": (nbytes,), "typestr": "|u1", "data": (address, False), "version": 3}
    return torch.as_tensor(owner, device=TORCH_DEVICE)


def _idle_bytes() -> int:
    import torch

    return int(torch.cuda.memory_reserved() - torch.cuda.memory_allocated())
