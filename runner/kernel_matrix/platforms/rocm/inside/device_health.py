"""The kernels of the :mod:`health check <kernel_matrix.inside.gpu_health>`, as HIP C++."""

from __future__ import annotations

from kernel_matrix.inside.core_clock import SHORTEST_S
from kernel_matrix.inside.gpu_health import check_devices
from kernel_matrix.inside.known_answers import INCREMENT, MULTIPLIER
from kernel_matrix.inside.platform import DeviceHealth
from kernel_matrix.platforms.rocm.inside.clock_probe import read_clocks
from kernel_matrix.platforms.rocm.inside.hip_text import STRIDED
from kernel_matrix.platforms.rocm.inside.libamdhip import opened

TEXT = f"""
extern "C" __global__ void known_answers(unsigned int *answers, unsigned int rounds)
{{
    const unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned int x = i;
    float y = (float)(i & 0xffff);
    do {{
        x = x * {MULTIPLIER}u + {INCREMENT}u;
        y = __builtin_fmaf(y, 4.0f, 3.0f);
        y = __builtin_fmaf(y, 0.25f, 0.25f);
    }} while (--rounds);
    answers[i] = x + (unsigned int)y;
}}

extern "C" __global__ void write_pattern(unsigned int *memory, unsigned int words, unsigned int mask)
{{
{STRIDED}
        memory[i] = i ^ mask;
}}

extern "C" __global__ void sum_pattern(const unsigned int *memory, unsigned int words, unsigned long long *total)
{{
    unsigned long long sum = 0;
{STRIDED}
        sum += memory[i];
    atomicAdd(total, sum);
}}
"""

CANNOT_ASK = (None, 209)
"""Codes of errors that come from the container and not from the GPU: no runtime, no compiler, a function missing in
them; a compiler that does not know this GPU (``hipErrorNoBinaryForGpu``)."""


def check_gpus(seconds: float, devices: int) -> DeviceHealth:
    """Check the first ``devices`` visible GPUs, with the clock of each measured over ``seconds``."""
    window_s = max(seconds, SHORTEST_S)
    return check_devices(opened, TEXT, lambda device: read_clocks(device, window_s), CANNOT_ASK, devices)
