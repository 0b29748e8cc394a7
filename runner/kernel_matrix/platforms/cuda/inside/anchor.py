"""Two fixed kernels of the judge, timed at the beginning and at the end of a session.

They are the same in every session on every machine, so their times show how fast the machine was. A change of a
candidate's time can then be distinguished from a change of the machine. One kernel does arithmetic in registers and
depends on the SM clock; the other copies more than any cache holds and depends on the memory.
"""

from __future__ import annotations

import ctypes
import statistics
import time

from kernel_matrix.model.messages import AnchorTimes
from kernel_matrix.platforms.cuda.inside.clock_probe import WORK
from kernel_matrix.platforms.cuda.inside.libcuda import opened

REPEATS = 9
"""Timed launches of each kernel, whose median counts; an odd number, so that it is one of them."""
ROUNDS = 4096
"""Passes through the arithmetic, which take a quarter of a millisecond at 2 GHz."""
COPY_BYTES = 64 << 20
"""Bytes that are read, and written; with source and target together this exceeds the L2 cache of any GPU."""

_THREADS = 256
_BLOCKS_PER_SM = 8
_WORD = 8

PTX = f"""
.version 6.0
.target sm_50
.address_size 64

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
    mov.f32 %factor, 0fBF800001;
    mov.f32 %one, 0f3F800000;
    cvt.rn.f32.u32 %x0, %thread;
    add.rn.f32 %x1, %x0, %one;
    add.rn.f32 %x2, %x1, %one;
    add.rn.f32 %x3, %x2, %one;
AGAIN:
{WORK}    sub.u32 %left, %left, 1;
    setp.ne.u32 %more, %left, 0;
    @%more bra AGAIN;

    setp.ne.u32 %silent, %thread, 0;
    @%silent ret;
    add.rn.f32 %x0, %x0, %x1;
    add.rn.f32 %x2, %x2, %x3;
    add.rn.f32 %x0, %x0, %x2;
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
    mov.u32 %thread, %tid.x;
    mov.u32 %block, %ctaid.x;
    mov.u32 %width, %ntid.x;
    mov.u32 %blocks, %nctaid.x;
    mad.lo.u32 %i, %block, %width, %thread;
    mul.lo.u32 %step, %blocks, %width;
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
    """Time the two kernels on the only visible GPU, which takes about ten milliseconds.

    Raises:
        DeviceError: if they cannot run.
    """
    started_ns = time.monotonic_ns()
    with opened() as device, device.module(PTX) as module, device.stopwatch() as stopwatch:
        sms = device.multiprocessors()
        with device.memory(COPY_BYTES) as source, device.memory(COPY_BYTES) as target:
            words, rounds = ctypes.c_uint32(COPY_BYTES // _WORD), ctypes.c_uint32(ROUNDS)

            def compute() -> None:
                module.launch("anchor_compute", sms, _THREADS, target, rounds)

            def copy() -> None:
                module.launch("anchor_copy", sms * _BLOCKS_PER_SM, _THREADS, source, target, words)

            computing, copying = [], []
            for _ in range(REPEATS):
                compute()  # untimed: it keeps the device busy, and its clock high, while the host queues the timed one
                computing.append(stopwatch.time_ns(compute))
                compute()
                copying.append(stopwatch.time_ns(copy))
    return AnchorTimes(
        phase=phase,
        started_ns=started_ns,
        compute_ns=round(statistics.median(computing)),
        memory_ns=round(statistics.median(copying)),
    )
