"""Doctor's lines about the devices of a platform, which are the same for every vendor."""

from __future__ import annotations

from collections.abc import Iterator

from kernel_matrix.platforms import Gpu, PlatformInventory
from kernel_matrix.platforms.check_result import CheckResult, fail, ok

_GIB = 1 << 30


def examine_gpus(inventory: PlatformInventory, architecture: str) -> Iterator[CheckResult]:
    """Check that every GPU answers, and describe each.

    Args:
        inventory: the platform's inventory.
        architecture: the vendor's word for the version of an instruction set, such as ``compute capability``.
    """
    if inventory.gpus and inventory.reason:
        found = f"not all of them answer: {inventory.reason}"
        yield fail("GPUs", found, "until then, cells run only on the others")
    for gpu in inventory.gpus:
        yield ok(f"GPU {gpu.index}", _describe(gpu, architecture))


def _describe(gpu: Gpu, architecture: str) -> str:
    capability = f"{architecture} {gpu.compute_capability or 'unknown'}"
    memory = f"{gpu.memory_bytes / _GIB:.0f} GiB"
    return f"{gpu.name}, {gpu.uuid}, {capability}, {memory}, driver {gpu.driver or 'unknown'}"
