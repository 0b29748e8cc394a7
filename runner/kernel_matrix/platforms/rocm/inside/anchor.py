"""The two fixed kernels that :mod:`kernel_matrix.inside.anchor_times` times, as HIP C++."""

from __future__ import annotations

from kernel_matrix.inside.anchor_times import time_anchors
from kernel_matrix.model.messages import AnchorTimes
from kernel_matrix.platforms.rocm.inside.hip_text import END_WORK, START_WORK, STRIDED, WORK
from kernel_matrix.platforms.rocm.inside.libamdhip import opened

COPY_BYTES = 256 << 20
"""Bytes that are read, and written; source and target together are far more than an Infinity Cache of 256 MiB."""

TEXT = f"""
extern "C" __global__ void anchor_compute(float *results, unsigned int rounds)
{{
{START_WORK}
    do {{
{WORK}
    }} while (--rounds);
    if (threadIdx.x == 0) results[blockIdx.x] = {END_WORK};
}}

extern "C" __global__ void anchor_copy(const unsigned long long *source, unsigned long long *target, unsigned int words)
{{
{STRIDED}
        target[i] = source[i];
}}
"""


def measure_anchor(phase: str) -> AnchorTimes:
    """Time the two kernels on the only visible GPU.

    Raises:
        DeviceError: They cannot run.
    """
    with opened() as device:
        return time_anchors(phase, device, TEXT, COPY_BYTES)
