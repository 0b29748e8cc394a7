"""The core clock of an AMD GPU: the kernel over clocks that move in steps, and what is made of its readings."""

import pytest

from kernel_matrix.model.messages import ClockProbeReading, from_json

MEASURE = """
from kernel_matrix.platforms.rocm.inside.clock_probe import measure_clock
from kernel_matrix.model.messages import dumps
print(dumps(measure_clock("before", 0.03)))
"""


@pytest.mark.parametrize("more", ["", " gfx11=1", " rate=48000"], ids=["wide", "20 bits", "48 MHz"])
def test_clock_is_read_whatever_width_and_rate(more, hip):
    probe = from_json(ClockProbeReading, hip.ask(MEASURE, wrong="threads=1 mhz=2100" + more))
    assert (probe.sms, probe.phase) == (4, "before")
    assert (probe.low_mhz, probe.sm_mhz, probe.high_mhz) == pytest.approx((2097, 2098.5, 2100))
    assert 0 < probe.started_ns <= probe.ended_ns
    assert hip.left_over() == {}


def test_wave_that_moved_between_units_says_nothing(hip):
    probe = from_json(ClockProbeReading, hip.ask(MEASURE, wrong="threads=1 moved=0"))
    assert (probe.sms, probe.high_mhz) == (3, pytest.approx(999))


UNREADABLE = {
    "still=1 threads=1": "no multiprocessor gave a usable reading of clock64 and wall_clock64",
    "rate=0": "the device does not tell the rate of its wall clock",
}


@pytest.mark.parametrize("wrong", UNREADABLE)
def test_wall_clock_that_cannot_be_used_is_an_error(wrong, hip):
    done = hip.run("-c", MEASURE, wrong=wrong)
    assert done.stderr.strip().endswith(f"DeviceError: {UNREADABLE[wrong]}")
    assert hip.left_over() == {}


def test_window_too_short_for_the_wall_clock_is_refused(hip):
    done = hip.run("-c", MEASURE.replace("0.03", "0.024"))
    assert "ValueError: a window of 0.024 s is too short" in done.stderr
    assert hip.left_over() == {}
