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
from kernel_matrix.platforms.cuda.inside.libcuda import opened
from kernel_matrix.platforms.cuda.inside.ptx import END_WORK, HEADER, START_WORK, STRIDED, WORK

REPEATS = 9
"""Timed launches of each kernel, whose median counts; an odd number, so that it is one of them."""
ROUNDS = 4096
"""Passes through the arithmetic, which take a quarter of a millisecond at 2 GHz."""
COPY_BYTES = 64 << 20
"""Bytes that are read, and written; with source and target together this exceeds the L2 cache of any GPU."""

_THREADS = 256
_BLOCKS_PER_SM = 8
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
