"""The SM clock measured in a kernel: cycles of ``clock64`` per nanosecond of ``globaltimer``, on every SM, under load.

The driver reports the clock that was requested of the hardware; this kernel counts the cycles that really passed. It
needs no permission except to run a kernel.

**Error.** ``globaltimer`` moves in steps of 32 ns to 1 µs, on some old GPUs of 1 ms. Both ends of the window are
therefore taken just after a step, by a loop that reads the timer more than once per microsecond. Whatever the step, the
window is wrong by at most 1 µs at either end, which is below 0.01 % of 25 ms.
"""

from __future__ import annotations

import ctypes
import statistics
import time
from array import array
from dataclasses import dataclass
from typing import Dict, Optional, Sequence

from kernel_matrix.inside.platform import DeviceError
from kernel_matrix.model.messages import ClockProbeReading
from kernel_matrix.platforms.cuda.inside.libcuda import CudaDevice, opened
from kernel_matrix.platforms.cuda.inside.ptx import END_WORK, HEADER, START_WORK, WORK

SHORTEST_S = 0.025
"""Shortest window; a shorter one has a larger error than stated above."""

_LEAD_NS = 5_000_000
"""Duration of the work before the window, in which the clock of an idle GPU rises."""
_THREADS = 256
"""Eight warps, two for each of an SM's four schedulers: with four chains each, no scheduler waits for a result."""
_CYCLES_PER_NS = 10
"""More cycles than any GPU has: the kernel ends after so many if ``globaltimer`` does not move."""
_WORDS = 7
"""64-bit words that a block writes: t0, c0, t1, c1, SM before, SM after, computed value."""

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
    mul.wide.u32 %offset, %block, {_WORDS * 8};
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


@dataclass(frozen=True)
class SmClocks:
    """Clock of each SM that could be measured in MHz, and start and end of the measurement by the monotonic clock."""

    started_ns: int
    ended_ns: int
    mhz: Sequence[float]


def measure_clock(phase: str, seconds: float = 0.03) -> ClockProbeReading:
    """Measure the SM clock under load, over a window of ``seconds`` on every SM of the only visible GPU.

    Raises:
        DeviceError: if the kernel cannot run, or no SM has usable timers.
        ValueError: if the window is shorter than :data:`SHORTEST_S`.
    """
    with opened() as device:
        clocks = read_clocks(device, seconds)
    if not clocks.mhz:
        raise DeviceError("no SM gave a usable reading of clock64 and globaltimer")
    return ClockProbeReading(
        phase=phase,
        started_ns=clocks.started_ns,
        ended_ns=clocks.ended_ns,
        sm_mhz=statistics.median(clocks.mhz),
        low_mhz=min(clocks.mhz),
        high_mhz=max(clocks.mhz),
        sms=len(clocks.mhz),
    )


def read_clocks(device: CudaDevice, seconds: float) -> SmClocks:
    """Measure the clock of every SM of ``device`` over a window of ``seconds`` under load.

    Raises:
        DeviceError: if the kernel cannot run.
        ValueError: if the window is shorter than :data:`SHORTEST_S`.
    """
    if seconds < SHORTEST_S:
        raise ValueError(f"a window of {seconds:g} s is too short for globaltimer, take at least {SHORTEST_S:g} s")
    window_ns = round(seconds * 1e9)
    times = (ctypes.c_uint64(n) for n in (_LEAD_NS, window_ns, window_ns * _CYCLES_PER_NS))
    blocks = device.multiprocessors()
    nbytes = blocks * _WORDS * 8
    with device.module(PTX) as module, device.memory(nbytes) as readings:
        device.wait()
        started_ns = time.monotonic_ns()
        module.launch("read_clocks", blocks, _THREADS, readings, *times)
        device.wait()
        ended_ns = time.monotonic_ns()
        words = array("Q", device.read(readings, nbytes))
    return SmClocks(started_ns, ended_ns, _by_sm(words, window_ns))


def _by_sm(words: Sequence[int], window_ns: int) -> Sequence[float]:
    """Return the clock of each SM in MHz from the words that the blocks wrote."""
    found: Dict[int, float] = {}
    for start in range(0, len(words), _WORDS):
        block = words[start : start + _WORDS]
        mhz = _megahertz(block, window_ns)
        if mhz is not None:
            found[block[4]] = mhz
    return tuple(found.values())


def _megahertz(block: Sequence[int], window_ns: int) -> Optional[float]:
    """Return one block's clock; None if the block moved to another SM, or a timer did not move."""
    t0, c0, t1, c1, before, after, _computed = block
    if before != after or t1 - t0 < window_ns or c1 <= c0:
        return None
    return (c1 - c0) / (t1 - t0) * 1000
