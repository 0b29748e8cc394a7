"""How fast a device is, measured: bytes per second from copies and sums, FLOP/s per dtype from matrix products.

What an unknown GPU is held against where no data sheet is known. Each figure is the best of several operations or
sizes, each of them the median of its repeats.
"""

from __future__ import annotations

import statistics
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Callable, Dict, Iterator, List, Optional, Tuple

import torch

from kernel_matrix.inside.environment import device_name, l2_bytes

FEWEST_REPEATS = 3
MOST_REPEATS = 100

DTYPES: Dict[str, Tuple[torch.dtype, str]] = {
    "fp64": (torch.float64, "highest"),
    "fp32": (torch.float32, "highest"),
    "tf32": (torch.float32, "high"),
    "fp16": (torch.float16, "highest"),
    "bf16": (torch.bfloat16, "highest"),
}
"""Name → torch's dtype and its precision for float32 matrix products, which decides about TF32."""

_GIB = 1 << 30


@dataclass(frozen=True)
class Calibration:
    """What was measured, and with what."""

    device_name: str
    bytes_per_s: float
    """Bytes read and written per second."""
    flops_per_s: Dict[str, float]
    """Floating point operations per second; a dtype that the device does not multiply is left out."""
    torch: str
    cuda: Optional[str]
    seconds: float
    """How long it took."""


def calibrate(device: str, seconds: float) -> Calibration:
    """Measure ``device`` (``cpu`` or ``cuda``) for about ``seconds``, not counting the first call of each operation.

    :raises RuntimeError: when torch cannot use the device.
    """
    started = time.monotonic()
    share_s = seconds / (1 + len(DTYPES))
    rates = {name: _flops_per_s(device, name, share_s) for name in DTYPES}
    bytes_per_s = _bytes_per_s(device, share_s)
    return Calibration(
        device_name=device_name(device),
        bytes_per_s=bytes_per_s,
        flops_per_s={name: rate for name, rate in rates.items() if rate is not None},
        torch=str(torch.__version__),
        cuda=torch.version.cuda,
        seconds=time.monotonic() - started,
    )


def _bytes_per_s(device: str, seconds: float) -> float:
    """The best of copying (each byte is read and written) and adding up (each byte is read)."""
    nbytes = _buffer_bytes(device)
    source = torch.ones(nbytes // 4, dtype=torch.float32, device=device)
    target = torch.empty_like(source)
    copying = _median_s(device, lambda: target.copy_(source), seconds / 2)
    adding = _median_s(device, lambda: torch.sum(source), seconds / 2)
    return max(2 * nbytes / copying, nbytes / adding)


def _buffer_bytes(device: str) -> int:
    """More than any cache holds, and no more than an eighth of the memory."""
    if device == "cpu":
        return 64 << 20
    memory = int(torch.cuda.get_device_properties(0).total_memory)
    return min(max(4 * l2_bytes(device), _GIB), memory // 8) // 4 * 4


def _flops_per_s(device: str, name: str, seconds: float) -> Optional[float]:
    """The best over the sizes of square matrices; null where the device does not multiply this dtype."""
    dtype, precision = DTYPES[name]
    sizes = (4096, 8192) if device == "cuda" else (256, 512)
    best: Optional[float] = None
    with _float32_products(precision):
        for size in sizes:
            # The next size up takes eight times as long: on a GPU that is slow in this dtype one size is enough.
            if best is not None and FEWEST_REPEATS * 2 * size**3 / best > seconds:
                break
            try:
                rate = _product_rate(device, dtype, size, seconds / len(sizes))
            except RuntimeError:
                if best is None:
                    return None
                break
            best = rate if best is None else max(best, rate)
    return best


def _product_rate(device: str, dtype: torch.dtype, size: int, seconds: float) -> float:
    left, right = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    out = torch.empty_like(left)
    return 2 * size**3 / _median_s(device, lambda: torch.matmul(left, right, out=out), seconds)


@contextmanager
def _float32_products(precision: str) -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _median_s(device: str, operation: Callable[[], object], seconds: float) -> float:
    """Median time of ``operation``, repeated for about ``seconds`` behind a first call that is not counted."""
    timed = _on_gpu if device == "cuda" else _on_cpu
    timed(operation)
    deadline = time.monotonic() + seconds
    times: List[float] = []
    while len(times) < FEWEST_REPEATS or (len(times) < MOST_REPEATS and time.monotonic() < deadline):
        times.append(timed(operation))
    return statistics.median(times)


def _on_gpu(operation: Callable[[], object]) -> float:
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    operation()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) / 1e3


def _on_cpu(operation: Callable[[], object]) -> float:
    started = time.perf_counter()
    operation()
    return time.perf_counter() - started
