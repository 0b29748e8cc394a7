"""Fills of a quiet and of a busy device, with a clock that moves as the test says."""
# ruff: noqa: E402  # without torch this file is skipped before the core is imported

from contextlib import nullcontext
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from kernel_matrix.inside.judge import quiet_device
from kernel_matrix.inside.judge.quiet_device import (
    EXCESS_NS,
    LEARNT_FILLS,
    QUICK_IN_A_ROW,
    SLOW_AT_MOST,
    WAIT_S,
    QuietDevice,
)
from kernel_matrix.platforms.cpu import inside as cpu

pytestmark = pytest.mark.torch

USUAL_NS = 40_000
SLOW_NS = USUAL_NS + EXCESS_NS + 1


class Device:
    """A device whose fills take as long as ``takes(number)`` says, nanoseconds."""

    IS_ACCELERATOR = True
    TORCH_DEVICE = "cpu"

    def __init__(self, takes):
        self.ns = 0
        self.fills = 0
        self._takes = takes
        self._waited = 0

    def on_device(self, _rank):
        return nullcontext()

    def synchronize(self):
        self._waited += 1
        if self._waited % 2 == 0:  # before a fill, and after it
            self.ns += self._takes(self.fills)
            self.fills += 1

    def perf_counter_ns(self):
        return self.ns

    def monotonic(self):
        return self.ns / 1e9


@pytest.fixture(autouse=True)
def little_memory(monkeypatch):
    """How long a fill takes is what the test says, however much is filled."""
    monkeypatch.setattr(quiet_device, "FILLED_BYTES", 1 << 10)


@pytest.fixture
def opened(monkeypatch):
    """Makes a device that has been learnt; its fills are counted from then on."""

    def make(takes):
        device = Device(lambda _fill: USUAL_NS)
        monkeypatch.setattr(quiet_device, "time", device)
        made = QuietDevice(device)
        made.learn()
        assert device.fills == LEARNT_FILLS
        device.fills, device._takes = 0, takes
        return made, device

    return make


def test_quiet_device_is_known_after_a_few_fills(opened):
    made, device = opened(lambda _fill: USUAL_NS + EXCESS_NS)
    assert made.wait()
    assert device.fills == QUICK_IN_A_ROW


def test_one_slow_fill_is_followed_by_more(opened):
    made, device = opened(lambda fill: SLOW_NS if fill == 3 else USUAL_NS)
    assert made.wait()
    assert device.fills == 4 + QUICK_IN_A_ROW


def test_work_that_ends_in_time_is_waited_for(opened):
    made, device = opened(lambda _fill: SLOW_NS if device.ns < WAIT_S * 0.9e9 else USUAL_NS)
    assert made.wait()
    assert device.ns > WAIT_S * 0.9e9


@pytest.mark.parametrize("takes", [lambda _fill: SLOW_NS, lambda fill: USUAL_NS if fill % 5 else SLOW_NS])
def test_device_that_stays_busy_is_not_quiet(takes, opened):
    made, device = opened(takes)
    assert not made.wait()
    assert device.ns >= WAIT_S * 1e9


def test_fills_differ_and_the_quickest_is_the_usual_one(monkeypatch):
    device = Device(lambda fill: USUAL_NS * (2 if fill % 2 else 1))
    monkeypatch.setattr(quiet_device, "time", device)
    made = QuietDevice(device)
    made.learn()
    assert made._usual_ns == USUAL_NS


@pytest.mark.parametrize(("slow", "concludes"), [(SLOW_AT_MOST, True), (SLOW_AT_MOST + 1, False)])
def test_device_that_was_busy_from_the_start_proves_nothing(slow, concludes, monkeypatch):
    device = Device(lambda fill: SLOW_NS if fill < slow else USUAL_NS)
    monkeypatch.setattr(quiet_device, "time", device)
    made = QuietDevice(device)
    made.learn()
    device._takes = lambda _fill: SLOW_NS
    assert made.wait() is not concludes


def test_platform_without_a_device_is_quiet():
    made = QuietDevice(cpu)
    made.learn()
    assert made.wait()


def test_device_that_was_not_learnt_is_quiet():
    assert QuietDevice(SimpleNamespace(IS_ACCELERATOR=True)).wait()


def test_device_of_each_rank_is_filled(monkeypatch):
    chosen = []
    device = Device(lambda _fill: USUAL_NS)
    device.on_device = lambda rank: nullcontext(chosen.append(rank))
    monkeypatch.setattr(quiet_device, "time", device)
    made = QuietDevice(device, 2)
    made.learn()
    assert chosen == [0, 1]
    for memory in made._memory:
        memory.fill_(1)
    assert made.wait()
    assert [bool(memory.any()) for memory in made._memory] == [False, False]
