"""Parts of HIP C++ that the judge's own kernels have in common."""

from __future__ import annotations

STRIDED = """    const unsigned int step = gridDim.x * blockDim.x;
    for (unsigned int i = blockIdx.x * blockDim.x + threadIdx.x; i < words; i += step)"""
"""Head of a loop in which each thread of all takes every ``step``-th word."""

START_WORK = """    const float factor = -0x1.000002p0f, one = 1.0f;
    float x0 = (float)threadIdx.x, x1 = x0 + one, x2 = x1 + one, x3 = x2 + one;
"""
"""First values of :data:`WORK`."""

# Alternating signs and a factor just above one keep the digits moving for the whole window, without overflow.
WORK = "".join(f"        x{chain} = __builtin_fmaf(x{chain}, factor, one);\n" for _ in range(16) for chain in range(4))
"""64 dependent steps of four chains of arithmetic over ``x0`` … ``x3``, ``factor`` and ``one``."""

END_WORK = "x0 + x1 + (x2 + x3)"
"""Sum of the four chains; without a use of them, the work could be left out."""
