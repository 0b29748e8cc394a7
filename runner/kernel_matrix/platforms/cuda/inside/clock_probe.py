"""The SM clock measured in a kernel: cycles of ``clock64`` per nanosecond of ``globaltimer``, on every SM, under load.

**Error.** ``globaltimer`` moves in steps of 32 ns to 1 µs, on some old GPUs of 1 ms. Both ends of the window are
therefore taken just after a step, by a loop that reads the timer more than once per microsecond. Whatever the step, the
window is wrong by at most 1 µs at either end, which is below 0.01 % of 25 ms.
"""

from __future__ import annotations

from kernel_matrix.inside.core_clock import WORDS_PER_BLOCK, CoreClocks, reading_of
from kernel_matrix.inside.core_clock import read_clocks as read_core_clocks
from kernel_matrix.inside.gpu_driver import DriverDevice
from kernel_matrix.model.messages import ClockProbeReading
from kernel_matrix.platforms.cuda.inside.libcuda import opened
from kernel_matrix.platforms.cuda.inside.ptx import END_WORK, HEADER, START_WORK, WORK

_LOOK = """
    mov.u64 %t, %globaltimer;
    mov.u64 %c, %clock64;
    sub.u64 %dt, %t, %t0;
    sub.u64 %dc, %c, %c0;
"""

PTX = f"""{HEADER}
.visible .entry read_clocks(
    .param .u64 readings,
    .param .u64 lead_ns,
    .param .u64 window_ns,
    .param .u64 most_cycles
)
{{
    .reg .pred %more, %silent;
    .reg .b32 %thread, %block, %before, %after;
    .reg .f32 %x<4>, %factor, %one;
    .reg .b64 %place, %offset, %lead, %window, %most, %t, %c, %t0, %c0, %dt, %dc, %wide;

    ld.param.u64 %place, [readings];
    ld.param.u64 %lead, [lead_ns];
    ld.param.u64 %window, [window_ns];
    ld.param.u64 %most, [most_cycles];
    mov.u32 %thread, %tid.x;
    mov.u32 %block, %ctaid.x;
    mov.u32 %before, %smid;
{START_WORK}
    mov.u64 %t0, %globaltimer;
    mov.u64 %c0, %clock64;
LEAD:
{WORK}{_LOOK}
    setp.lt.u64 %more, %dt, %lead;
    setp.lt.and.u64 %more, %dc, %most, %more;
    @%more bra LEAD;
    mov.u64 %t0, %t;
    mov.u64 %c0, %c;
WINDOW:
{WORK}{_LOOK}
    setp.lt.u64 %more, %dt, %window;
    setp.lt.and.u64 %more, %dc, %most, %more;
    @%more bra WINDOW;
    mov.u32 %after, %smid;

    setp.ne.u32 %silent, %thread, 0;
    @%silent ret;
    mul.wide.u32 %offset, %block, {WORDS_PER_BLOCK * 8};
    add.u64 %place, %place, %offset;
    st.global.u64 [%place], %t0;
    st.global.u64 [%place+8], %c0;
    st.global.u64 [%place+16], %t;
    st.global.u64 [%place+24], %c;
    cvt.u64.u32 %wide, %before;
    st.global.u64 [%place+32], %wide;
    cvt.u64.u32 %wide, %after;
    st.global.u64 [%place+40], %wide;
{END_WORK}
    st.global.f32 [%place+48], %x0;
    ret;
}}
"""
"""Kernel in which one block per SM works until its window has passed, and writes both timers at either end."""


def measure_clock(phase: str, seconds: float = 0.03) -> ClockProbeReading:
    """Measure the SM clock under load, over a window of ``seconds`` on every SM of the only visible GPU.

    Raises:
        DeviceError: if the kernel cannot run, or no SM has usable timers.
        ValueError: if the window is too short.
    """
    with opened() as device:
        clocks = read_clocks(device, seconds)
    return reading_of(phase, clocks, "clock64 and globaltimer")


def read_clocks(device: DriverDevice, seconds: float) -> CoreClocks:
    """Measure the clock of every SM of ``device`` over a window of ``seconds`` under load.

    Raises:
        DeviceError: if the kernel cannot run.
        ValueError: if the window is too short.
    """
    return read_core_clocks(device, PTX, seconds)
