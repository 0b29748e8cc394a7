"""When a warm-up is over: readings that agree for long enough, by clock and by temperature."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_matrix.inside.judge.warm_up import (
    INTERVAL_S,
    WINDOW_S,
    SensorReading,
    SensorWatch,
    agree,
    last_window,
    watch_of,
)
from kernel_matrix.inside.platform import SensorError
from kernel_matrix.model.messages import ProtocolSpec, dumps
from tests.inside.sessions import make_job
from tests.sim.nvml import H200


def readings(clocks, temperatures=(50,), every_s=0.05):
    """Readings from time 0 on; the shorter list is repeated."""
    return [
        SensorReading(index * every_s, clock, temperatures[index % len(temperatures)])
        for index, clock in enumerate(clocks)
    ]


AGREEING = {
    "nothing moves": (readings([1980] * 6), True),
    "one step of the clock": (readings([1980, 1965] * 3), True),
    "two steps of the clock": (readings([1980, 1965, 1950] * 2), False),
    "just one per cent": (readings([1000, 990]), True),
    "more than one per cent": (readings([1000, 989]), False),
    "a degree": (readings([1980] * 6, (50, 51)), True),
    "two degrees": (readings([1980] * 6, (50, 51, 52)), False),
    "nothing was read": ([], False),
}


@pytest.mark.parametrize("name", AGREEING)
def test_readings_agree_within_a_per_cent_and_a_degree(name):
    given_readings, expected = AGREEING[name]
    assert agree(given_readings) is expected


@given(st.lists(st.floats(0.001, 1.0), max_size=40))
def test_the_last_window_is_the_shortest_that_is_long_enough(steps):
    times = [sum(steps[:count]) for count in range(len(steps) + 1)]
    window = last_window([SensorReading(at, 1980, 50) for at in times])
    if times[-1] - times[0] < WINDOW_S:
        assert window == ()
        return
    assert window[-1].at_s == times[-1]
    assert window[-1].at_s - window[0].at_s >= WINDOW_S
    assert len(window) == 1 or window[-1].at_s - window[1].at_s < WINDOW_S


class Gpu:
    """Sensors whose readings are told by time, and the time itself."""

    def __init__(self, clock, temperature=lambda _: 50):
        self.now_s = 100.0
        self.asked = 0
        self._clock = clock
        self._temperature = temperature

    def now(self):
        return self.now_s

    def sensors(self):
        self.asked += 1
        elapsed = self.now_s - 100.0
        return self._clock(elapsed), self._temperature(elapsed)

    def seconds_until_steady(self, *, every_s=0.01, at_most_s=10.0):
        watch = SensorWatch(self.sensors, self.now)
        while not watch.steady():
            self.now_s += every_s
            if self.now_s - 100.0 > at_most_s:
                return None
        return self.now_s - 100.0


def test_a_gpu_that_does_not_move_is_steady_after_one_window():
    assert Gpu(lambda _: 1980).seconds_until_steady() == pytest.approx(WINDOW_S, abs=0.03)


def test_a_clock_that_rises_is_waited_for():
    ramp = Gpu(lambda elapsed: min(1980, 345 + round(elapsed * 1635)))
    assert ramp.seconds_until_steady() == pytest.approx(1 + WINDOW_S, abs=0.06)


def test_a_temperature_that_rises_is_waited_for():
    heating = Gpu(lambda _: 1980, lambda elapsed: min(60, 40 + int(elapsed * 20)))
    assert heating.seconds_until_steady() == pytest.approx(0.95 + WINDOW_S, abs=0.06)


def test_a_clock_that_keeps_jumping_is_never_steady():
    jumping = Gpu(lambda elapsed: 1980 if int(elapsed * 10) % 2 else 1530)
    assert jumping.seconds_until_steady() is None


def test_sensors_are_read_no_more_often_than_the_interval():
    gpu = Gpu(lambda elapsed: round(1000 * elapsed))
    gpu.seconds_until_steady(every_s=0.001, at_most_s=1.0)
    assert 0.8 / INTERVAL_S < gpu.asked <= 1.0 / INTERVAL_S + 1


def test_slow_calls_are_judged_by_the_readings_between_them():
    gpu = Gpu(lambda _: 1980)
    assert gpu.seconds_until_steady(every_s=3.0) == 3.0


def test_readings_under_another_load_are_forgotten():
    gpu = Gpu(lambda _: 1980)
    watch = SensorWatch(gpu.sensors, gpu.now)
    watch.steady()
    gpu.now_s += 1.0
    watch.start()
    assert not watch.steady()
    gpu.now_s += 1.0
    assert watch.steady()


def test_sensors_that_fail_make_it_blind_and_never_steady():
    def failing():
        raise SensorError("gone")

    watch = SensorWatch(failing)
    assert not watch.blind
    assert not watch.steady()
    assert watch.blind
    assert not watch.steady()
    assert SensorWatch(None).blind


@pytest.mark.parametrize(
    "job",
    [make_job(), make_job(device="cuda", gpu_uuid=H200["uuid"], protocol=replace(ProtocolSpec(), steady_cap_s=0))],
    ids=["cpu", "a cap of zero"],
)
def test_what_is_not_to_be_looked_at_is_not(job):
    with watch_of(job) as watch:
        assert watch is None


WATCH = """
import json, sys
from kernel_matrix.model.messages import JudgeJob, from_json
from kernel_matrix.inside.judge.warm_up import watch_of
with watch_of(from_json(JudgeJob, json.loads(%r))) as watch:
    while not watch.steady() and not watch.blind:
        pass
    print(json.dumps(watch.blind))
"""


def test_a_real_watch_reads_the_gpu_that_the_job_names(driver):
    driver.set(H200)
    assert driver.ask(WATCH % dumps(make_job(device="cuda", gpu_uuid=H200["uuid"]))) is False
    assert driver.ask(WATCH % dumps(make_job(device="cuda", gpu_uuid="GPU-of-another-host"))) is True
    driver.set({**H200, "temperature": "!3"})
    assert driver.ask(WATCH % dumps(make_job(device="cuda", gpu_uuid=H200["uuid"]))) is True
