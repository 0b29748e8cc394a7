"""Measured peak rates of a device: bytes per second of copies and sums, FLOP/s of matrix products per dtype.

They serve as limits for a GPU without a known data sheet. Each rate is the best of several operations or sizes, and
each of these is the median of its repeats.
"""

from __future__ import annotations

import statistics
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Callable, Dict, Iterator, List, Optional, Tuple

import torch

from kernel_matrix.inside.environment import read_environment
from kernel_matrix.inside.platform import InsidePlatform

FEWEST_REPEATS = 3  # even if one takes longer than the time that is given
MOST_REPEATS = 100

DTYPES: Dict[str, Tuple[torch.dtype, str]] = {
    "fp64": (torch.float64, "highest"),
    "fp32": (torch.float32, "highest"),
    "tf32": (torch.float32, "high"),
    "fp16": (torch.float16, "highest"),
    "bf16": (torch.bfloat16, "highest"),
}
"""Name → torch's dtype and its precision for float32 matrix products, which decides about TF32."""


@dataclass(frozen=True)
class Calibration:
    """Measured rates, with the versions used."""

    device_name: str
    bytes_per_s: float
    """Bytes read and written per second."""
    flops_per_s: Dict[str, float]
    """Floating point operations per second; a dtype without matrix products on the device is left out."""
    torch: str
    cuda: Optional[str]
    seconds: float
    """Duration of the measurement, seconds."""


def calibrate(platform: InsidePlatform, seconds: float) -> Calibration:
    """Measure the device of ``platform`` for about ``seconds``, not counting the first call of each operation.

    Raises:
        RuntimeError: Torch cannot use the device.
    """
    started = time.monotonic()
    share_s = seconds / (1 + len(DTYPES))
    rates = {name: _flops_per_s(platform, name, share_s) for name in DTYPES}
    bytes_per_s = _bytes_per_s(platform, share_s)
    return Calibration(
        device_name=read_environment(platform).device_name,
        bytes_per_s=bytes_per_s,
        flops_per_s={name: rate for name, rate in rates.items() if rate is not None},
        torch=str(torch.__version__),
        cuda=torch.version.cuda,
        seconds=time.monotonic() - started,
    )


def _bytes_per_s(platform: InsidePlatform, seconds: float) -> float:
    """Return the best rate of copying (each byte is read and written) and summing (each byte is read)."""
    nbytes = platform.buffer_bytes()
    source = torch.ones(nbytes // 4, dtype=torch.float32, device=platform.TORCH_DEVICE)
    target = torch.empty_like(source)
    copying = _median_s(platform, lambda: target.copy_(source), seconds / 2)
    adding = _median_s(platform, lambda: torch.sum(source), seconds / 2)
    return max(2 * nbytes / copying, nbytes / adding)


def _flops_per_s(platform: InsidePlatform, name: str, seconds: float) -> Optional[float]:
    """Return the best rate over the sizes of square matrices; ``None`` if the device cannot multiply this dtype."""
    dtype, precision = DTYPES[name]
    sizes = platform.product_sizes()
    best: Optional[float] = None
    with _float32_products(precision):
        for size in sizes:
            # The next size takes eight times as long: on a GPU that is slow in this dtype one size is enough.
            if best is not None and FEWEST_REPEATS * 2 * size**3 / best > seconds:
                break
            try:
                rate = _product_rate(platform, dtype, size, seconds / len(sizes))
            except RuntimeError:
                if best is None:
                    return None
                break
            best = rate if best is None else max(best, rate)
    return best


def _product_rate(platform: InsidePlatform, dtype: torch.dtype, size: int, seconds: float) -> float:
    left, right = (torch.randn(size, size, device=platform.TORCH_DEVICE).to(dtype) for _ in range(2))
    out = torch.empty_like(left)
    return 2 * size**3 / _median_s(platform, lambda: torch.matmul(left, right, out=out), seconds)


@contextmanager
def _float32_products(precision: str) -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _median_s(platform: InsidePlatform, operation: Callable[[], object], seconds: float) -> float:
    """Return the median time of ``operation``, repeated for about ``seconds`` after an uncounted first call."""
    timer = platform.make_timer()
    timer(operation)
    deadline = time.monotonic() + seconds
    times: List[float] = []
    while len(times) < FEWEST_REPEATS or (len(times) < MOST_REPEATS and time.monotonic() < deadline):
        times.append(timer(operation)[1] / 1e9)
    return statistics.median(times)
