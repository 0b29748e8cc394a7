"""Sizes of the caches between the compute units of an AMD GPU and its memory."""

from __future__ import annotations

import torch

_MIB = 1 << 20

SIZES_MIB = {
    "gfx906": (4, 0),
    "gfx908": (8, 0),
    "gfx90a": (8, 0),
    "gfx942": (32, 256),
    "gfx950": (32, 256),
    "gfx1030": (4, 128),
    "gfx1031": (3, 96),
    "gfx1032": (2, 32),
    "gfx1100": (6, 96),
    "gfx1101": (4, 64),
    "gfx1102": (2, 32),
    "gfx1200": (4, 32),
    "gfx1201": (8, 64),
}
"""Architecture → L2 cache and Infinity Cache of its largest device, MiB.

ROCm documentation, GPU hardware specifications, https://rocm.docs.amd.com/en/latest/reference/gpu-specs.html
"""
_LARGEST_INFINITY_CACHE_MIB = 256  # assumed for an architecture that is not in the table


def architecture() -> str:
    """Return the architecture of the device, such as ``gfx942``."""
    name: str = torch.cuda.get_device_properties(0).gcnArchName
    return name.partition(":")[0]


def cache_bytes() -> int:
    """Return the size of L2 and Infinity Cache together: what is flushed must go through both.

    torch knows the size of the L2 cache only, and on devices of several dies that of one die.
    """
    if (sizes := SIZES_MIB.get(architecture())) is not None:
        return sum(sizes) * _MIB
    l2_bytes = int(getattr(torch.cuda.get_device_properties(0), "L2_cache_size", 0))
    return l2_bytes + _LARGEST_INFINITY_CACHE_MIB * _MIB
