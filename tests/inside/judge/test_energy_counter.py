"""Energy between two changes of a counter that a thread reads beside the calls."""

from __future__ import annotations

import itertools
import math
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest

from kernel_matrix.inside.judge import energy_counter
from kernel_matrix.inside.judge.energy_counter import counter_of, measure_energy
from kernel_matrix.inside.platform import SensorError
from kernel_matrix.measure.energy import joules_per_call
from kernel_matrix.model.enums import Regime
from kernel_matrix.model.messages import ProtocolSpec, to_json

STEP_S = 0.02
WATTS = 500


def stepping():
    """A counter of a constant power that moves every 20 ms."""
    return math.floor(time.monotonic() / STEP_S) * round(WATTS * STEP_S * 1000)


def calls():
    time.sleep(0.01)
    return 4


@pytest.fixture(autouse=True)
def _short(monkeypatch):
    monkeypatch.setattr(energy_counter, "READ_FOR_S", 0.5)


def read(counter):
    return measure_energy(counter, "candidate", calls)


def test_the_bounds_hold_the_true_power():
    found = next(filter(None, (read(stepping) for _ in itertools.repeat(None, 20))))  # a busy machine may read too late
    shortest_s, longest_s = found.shortest_ns / 1e9, found.longest_ns / 1e9
    assert shortest_s <= found.energy_mj / 1000 / WATTS <= longest_s <= energy_counter.WIDEST * shortest_s
    joules = joules_per_call({"energies": [to_json(found)]}, "candidate")
    call_s = (found.ended_ns - found.started_ns) / 1e9 / found.calls
    assert joules.low <= WATTS * call_s <= joules.high


def test_a_counter_that_stands_or_fails_has_no_energy():
    def failing():
        raise SensorError("gone")

    assert read(lambda: 7) is None
    assert read(failing) is None


def test_a_counter_that_fails_later_has_no_energy():
    readings = itertools.count()

    def failing_later():
        if next(readings) > 3:
            raise SensorError("gone")
        return next(readings)

    assert read(failing_later) is None


def test_a_counter_that_began_anew_has_no_energy():
    start = time.monotonic()
    assert read(lambda: 10**9 - round((time.monotonic() - start) * 1000)) is None


def test_steps_too_coarse_for_the_time_have_no_energy(monkeypatch):
    monkeypatch.setattr(energy_counter, "WIDEST", 1.0)
    assert read(stepping) is None


def job(**changes):
    spec = ProtocolSpec(regimes=(Regime.COLD, Regime.SUSTAINED))
    return SimpleNamespace(device="cuda", gpu_uuid="GPU-1", protocol=replace(spec, **changes))


def test_the_counter_is_opened_only_where_calls_keep_the_device_busy(monkeypatch):
    opened = []

    class Platform:
        IS_ACCELERATOR = True

        @staticmethod
        def energy_counter(uuid):
            opened.append(uuid)
            raise SensorError("none")

    monkeypatch.setattr(energy_counter, "load_platform", lambda _name: Platform)
    for asked, uuids in ((job(regimes=(Regime.COLD,)), []), (job(), ["GPU-1"])):
        with counter_of(asked) as counter:
            assert (counter, opened) == (None, uuids)
