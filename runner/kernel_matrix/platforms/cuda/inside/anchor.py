"""The two fixed kernels that :mod:`kernel_matrix.inside.anchor_times` times, as PTX."""

from __future__ import annotations

from kernel_matrix.inside.anchor_times import time_anchors
from kernel_matrix.model.messages import AnchorTimes
from kernel_matrix.platforms.cuda.inside.libcuda import opened
from kernel_matrix.platforms.cuda.inside.ptx import END_WORK, HEADER, START_WORK, STRIDED, WORK

COPY_BYTES = 64 << 20
"""Bytes that are read, and written; with source and target together this exceeds the L2 cache of any GPU."""

_WORD = 8

PTX = f"""{HEADER}
.visible .entry anchor_compute(.param .u64 results, .param .u32 rounds)
{{
    .reg .pred %more, %silent;
    .reg .b32 %thread, %block, %left;
    .reg .f32 %x<4>, %factor, %one;
    .reg .b64 %place, %offset;

    ld.param.u64 %place, [results];
    ld.param.u32 %left, [rounds];
    mov.u32 %thread, %tid.x;
    mov.u32 %block, %ctaid.x;
{START_WORK}
AGAIN:
{WORK}
    sub.u32 %left, %left, 1;
    setp.ne.u32 %more, %left, 0;
    @%more bra AGAIN;

    setp.ne.u32 %silent, %thread, 0;
    @%silent ret;
{END_WORK}
    mul.wide.u32 %offset, %block, 4;
    add.u64 %place, %place, %offset;
    st.global.f32 [%place], %x0;
    ret;
}}

.visible .entry anchor_copy(.param .u64 source, .param .u64 target, .param .u32 words)
{{
    .reg .pred %over;
    .reg .b32 %thread, %block, %width, %blocks, %i, %step, %words;
    .reg .b64 %source, %target, %from, %to, %offset, %x;

    ld.param.u64 %source, [source];
    ld.param.u64 %target, [target];
    ld.param.u32 %words, [words];
{STRIDED}
COPY:
    setp.ge.u32 %over, %i, %words;
    @%over ret;
    mul.wide.u32 %offset, %i, {_WORD};
    add.u64 %from, %source, %offset;
    add.u64 %to, %target, %offset;
    ld.global.u64 %x, [%from];
    st.global.u64 [%to], %x;
    add.u32 %i, %i, %step;
    bra COPY;
}}
"""


def measure_anchor(phase: str) -> AnchorTimes:
    """Time the two kernels on the only visible GPU.

    Raises:
        DeviceError: if they cannot run.
    """
    with opened() as device:
        return time_anchors(phase, device, PTX, COPY_BYTES)
