"""How far a clock must move after its reset to have left, on a simulated driver."""

import pytest
from sim.nvml import H200

from kernel_matrix.lease import restore
from kernel_matrix.lease.journal import MEMORY, SM, ClockNote
from kernel_matrix.platforms import Gpu
from tests.lease.settings import Program

UUID = H200["uuid"]


@pytest.mark.parametrize(
    ("target", "chosen", "state"),
    [
        (1500, 1515, "unconfirmed"),  # within 15 MHz and 1 %
        (1500, 1516, "confirmed"),
        (1500, 1484, "confirmed"),
        (600, 607, "confirmed"),  # more than 1 %
        (600, 606, "unconfirmed"),
        ("base", 1515, "unconfirmed"),  # 1500 MHz, which the driver does not tell: nor that it was another before
        ("base", 1530, "confirmed"),
    ],
)
def test_clock_has_left_beyond_the_spread_of_readings(nvidia, tmp_path, target, chosen, state):
    nvidia.set({"clock_sm": chosen})
    program = Program(nvidia, tmp_path, "clocks", clock_target=target, memory_clock="off")
    program.hears()
    assert program.end()["reset"] == state


def test_a_symbolic_clock_has_left_only_for_what_it_was_before(nvidia, tmp_path):
    nvidia.set()
    program = Program(nvidia, tmp_path, "clocks", memory_clock="off")
    program.hears()
    nvidia.driver.change(UUID, clock_sm=1200)
    after = program.end()
    assert after["reset"] == "unconfirmed"
    assert (
        after["reset_reason"]
        == "the SM clock was 1980 MHz before the lock, 1500 MHz before the reset, and 1200 MHz after it"
    )


def test_changed_memory_clock_must_leave_its_lock_too(nvidia, tmp_path):
    nvidia.set({"clock_memory": 1593})
    program = Program(nvidia, tmp_path, "clocks", clock_target=1500)
    program.hears()
    nvidia.driver.change(UUID, clock_memory=3201)
    after = program.end()
    assert after["reset"] == "unconfirmed"
    assert "was 1593 MHz before the lock, 3201 MHz before the reset, and 3201 MHz after it" in after["reset_reason"]


def test_sm_clock_that_leaves_at_the_second_reading_is_confirmed(monkeypatch):
    readings = iter([1500, 1980])
    monkeypatch.setattr(restore, "_READ_EVERY_S", 0)
    monkeypatch.setattr(restore, "read_clocks", lambda _gpu: {SM: next(readings)})
    clock = restore._ClockWatch(SM, ClockNote(target_mhz=1500, before_mhz=1500), 1500)
    watched = restore._watch_release(Gpu(platform="cuda", uuid=UUID, name="H200"), {SM: clock})
    assert watched.state is restore.ResetState.CONFIRMED


def test_sm_clock_that_stays_is_unconfirmed_though_memory_left(monkeypatch):
    monkeypatch.setattr(restore, "_READ_FOR_S", 0.05)
    monkeypatch.setattr(restore, "read_clocks", lambda _gpu: {SM: 1500, MEMORY: 1593})
    clocks = {
        SM: restore._ClockWatch(SM, ClockNote(target_mhz=1500, before_mhz=1500), 1500),
        MEMORY: restore._ClockWatch(MEMORY, ClockNote(target_mhz=3201, before_mhz=1593), 3201),
    }
    watched = restore._watch_release(Gpu(platform="cuda", uuid=UUID, name="H200"), clocks)
    assert watched.state is restore.ResetState.UNCONFIRMED
