"""The kernels of the :mod:`health check <kernel_matrix.inside.gpu_health>`, as PTX."""

from __future__ import annotations

from kernel_matrix.inside.core_clock import SHORTEST_S
from kernel_matrix.inside.gpu_health import check_devices
from kernel_matrix.inside.known_answers import INCREMENT, MULTIPLIER
from kernel_matrix.inside.platform import DeviceHealth
from kernel_matrix.platforms.cuda.inside.clock_probe import read_clocks
from kernel_matrix.platforms.cuda.inside.libcuda import opened
from kernel_matrix.platforms.cuda.inside.ptx import HEADER, STRIDED

PTX = f"""{HEADER}
.visible .entry known_answers(.param .u64 answers, .param .u32 rounds)
{{
    .reg .pred %more;
    .reg .b32 %thread, %block, %width, %i, %x, %rest, %whole;
    .reg .f32 %y, %four, %three, %quarter;
    .reg .b64 %place, %offset;

    ld.param.u64 %place, [answers];
    ld.param.u32 %rest, [rounds];
    mov.u32 %thread, %tid.x;
    mov.u32 %block, %ctaid.x;
    mov.u32 %width, %ntid.x;
    mad.lo.u32 %i, %block, %width, %thread;
    mov.u32 %x, %i;
    and.b32 %whole, %i, 0xffff;
    cvt.rn.f32.u32 %y, %whole;
    mov.f32 %four, 0f40800000;
    mov.f32 %three, 0f40400000;
    mov.f32 %quarter, 0f3E800000;
STEP:
    mad.lo.u32 %x, %x, {MULTIPLIER}, {INCREMENT};
    fma.rn.f32 %y, %y, %four, %three;
    fma.rn.f32 %y, %y, %quarter, %quarter;
    sub.u32 %rest, %rest, 1;
    setp.ne.u32 %more, %rest, 0;
    @%more bra STEP;
    cvt.rzi.u32.f32 %whole, %y;
    add.u32 %x, %x, %whole;
    mul.wide.u32 %offset, %i, 4;
    add.u64 %place, %place, %offset;
    st.global.u32 [%place], %x;
    ret;
}}

.visible .entry write_pattern(.param .u64 memory, .param .u32 words, .param .u32 mask)
{{
    .reg .pred %over;
    .reg .b32 %thread, %block, %width, %blocks, %i, %step, %words, %mask, %x;
    .reg .b64 %memory, %place;

    ld.param.u64 %memory, [memory];
    ld.param.u32 %words, [words];
    ld.param.u32 %mask, [mask];
{STRIDED}
WRITE:
    setp.ge.u32 %over, %i, %words;
    @%over ret;
    mul.wide.u32 %place, %i, 4;
    add.u64 %place, %place, %memory;
    xor.b32 %x, %i, %mask;
    st.global.u32 [%place], %x;
    add.u32 %i, %i, %step;
    bra WRITE;
}}

.visible .entry sum_pattern(.param .u64 memory, .param .u32 words, .param .u64 total)
{{
    .reg .pred %over;
    .reg .b32 %thread, %block, %width, %blocks, %i, %step, %words, %x;
    .reg .b64 %memory, %place, %total, %sum, %wide;

    ld.param.u64 %memory, [memory];
    ld.param.u32 %words, [words];
    ld.param.u64 %total, [total];
{STRIDED}
    mov.u64 %sum, 0;
READ:
    setp.ge.u32 %over, %i, %words;
    @%over bra DONE;
    mul.wide.u32 %place, %i, 4;
    add.u64 %place, %place, %memory;
    ld.global.u32 %x, [%place];
    cvt.u64.u32 %wide, %x;
    add.u64 %sum, %sum, %wide;
    add.u32 %i, %i, %step;
    bra READ;
DONE:
    red.global.add.u64 [%total], %sum;
    ret;
}}
"""

CANNOT_ASK = (None, 221, 222, 223)
"""Codes of errors that come from the container and not from the GPU: no driver library, or a function missing in it;
no compiler for PTX (``CUDA_ERROR_JIT_COMPILER_NOT_FOUND``), one that is too old (``UNSUPPORTED_PTX_VERSION``), or one
that is disabled (``JIT_COMPILATION_DISABLED``)."""


def check_gpus(seconds: float, devices: int) -> DeviceHealth:
    """Check the first ``devices`` visible GPUs, with the clock of each measured over ``seconds``."""
    window_s = max(seconds, SHORTEST_S)
    return check_devices(opened, PTX, lambda device: read_clocks(device, window_s), CANNOT_ASK, devices)
