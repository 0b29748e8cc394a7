"""Doctor's lines about the devices of a platform, which are the same for every vendor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kernel_matrix.platforms import NO_ACCESS, Gpu, PlatformInventory, named
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


def examine_ways(ways: Mapping[Gpu, str], words: Mapping[str, str], advice: str) -> Iterator[CheckResult]:
    """Check that the daemon can give each GPU to a container.

    Args:
        ways: GPU → name of its way into a container.
        words: name of a way → how the GPU gets in.
        advice: advice for a GPU that has no way.
    """
    subject = "GPUs in containers"
    for way in dict.fromkeys(ways.values()):
        gpus = named(gpu for gpu, found in ways.items() if found == way)
        if way == NO_ACCESS:
            yield fail(subject, f"{gpus}: no way into a container", advice)
        else:
            yield ok(subject, f"{gpus}: {words[way]}")


def _describe(gpu: Gpu, architecture: str) -> str:
    capability = f"{architecture} {gpu.compute_capability or 'unknown'}"
    memory = f"{gpu.memory_bytes / _GIB:.0f} GiB"
    return f"{gpu.name}, {gpu.uuid}, {capability}, {memory}, driver {gpu.driver or 'unknown'}"
