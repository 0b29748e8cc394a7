"""The core clock measured in a kernel: cycles of ``clock64`` per tick of ``wall_clock64``, on every compute unit.

**Error.** The wall clock runs at a fixed rate, 100 MHz on most devices, which the device tells. Both ends of the window
are read within one pass of a loop that takes less than a microsecond, which is below 0.01 % of 25 ms.

On RDNA 3 the counter of cycles has 20 bits. The kernel therefore adds up what passed between two readings, which are
much closer than the 0.4 ms in which such a counter overflows.
"""

from __future__ import annotations

from kernel_matrix.inside.core_clock import WORDS_PER_BLOCK, CoreClocks, reading_of
from kernel_matrix.inside.core_clock import read_clocks as read_core_clocks
from kernel_matrix.inside.gpu_driver import DriverDevice
from kernel_matrix.inside.platform import DeviceError
from kernel_matrix.model.messages import ClockProbeReading
from kernel_matrix.platforms.rocm.inside.hip_text import END_WORK, START_WORK, WORK
from kernel_matrix.platforms.rocm.inside.libamdhip import WALL_CLOCK_RATE, opened

_LOOK = """        t = wall_clock64();
        now = clock64();
        c += (now - last) & CYCLES;
        last = now;
"""

TEXT = f"""
#if defined(__GFX11__)
#define CYCLES 0xfffffull
#else
#define CYCLES 0xffffffffffffffffull
#endif
typedef unsigned long long word;

extern "C" __global__ void read_clocks(word *readings, word lead, word window, word most)
{{
    const unsigned int before = __smid();
{START_WORK}
    word t = wall_clock64(), last = clock64(), now, c = 0;
    word t0 = t, c0 = c;
    do {{
{WORK}{_LOOK}
    }} while (t - t0 < lead && c - c0 < most);
    t0 = t;
    c0 = c;
    do {{
{WORK}{_LOOK}
    }} while (t - t0 < window && c - c0 < most);

    if (threadIdx.x != 0) return;
    word *place = readings + blockIdx.x * {WORDS_PER_BLOCK};
    place[0] = t0;
    place[1] = c0;
    place[2] = t;
    place[3] = c;
    place[4] = before;
    place[5] = __smid();
    *(float *)(place + 6) = {END_WORK};
}}
"""
"""Kernel in which as many blocks as there are units work until their window has passed, and write both clocks."""


def measure_clock(phase: str, seconds: float = 0.03) -> ClockProbeReading:
    """Measure the core clock under load, over a window of ``seconds`` on the units of the only visible GPU.

    Raises:
        DeviceError: The kernel cannot run, or no unit has usable timers.
        ValueError: The window is too short.
    """
    with opened() as device:
        clocks = read_clocks(device, seconds)
    return reading_of(phase, clocks, "clock64 and wall_clock64")


def read_clocks(device: DriverDevice, seconds: float) -> CoreClocks:
    """Measure the clock of the units of ``device`` over a window of ``seconds`` under load.

    Raises:
        DeviceError: The kernel cannot run, or the device does not tell the rate of its wall clock.
        ValueError: The window is too short.
    """
    rate_khz = device.attribute(WALL_CLOCK_RATE)
    if rate_khz <= 0:
        raise DeviceError("the device does not tell the rate of its wall clock")
    return read_core_clocks(device, TEXT, seconds, rate_khz / 1000)
