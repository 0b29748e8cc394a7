"""Verdicts on the clocks, from the locked clocks and those measured under load."""

from __future__ import annotations

import pytest

from kernel_matrix.attempt.clock_verdict import clock_verdict, clocks_info
from kernel_matrix.attempt.telemetry_join import join
from kernel_matrix.lease import ClocksSet, ResetState
from kernel_matrix.model.enums import ClockPolicy, ClockState
from tests.attempt.looking import CAP, four_blocks, look, looks, report, session


def clocks(**changes):
    told = {"requested": "1500", "set_sm_mhz": 1500, "locked": True, "reason": "SM clock locked to 1500 MHz"}
    return ClocksSet(policy=ClockPolicy.LOCK, **{**told, **changes})


def measured(*, driver=1500, inside=(1500,), **changes):
    """Make one session at these clocks, by the driver and inside a kernel."""
    return join(
        looks(0, 1000, sm_clock_mhz=driver, **changes),
        [session(report(four_blocks(), probes=inside))],
        exclusive=True,
        trace=None,
    )


def verdict(joined, **changes):
    found = clock_verdict(clocks(**changes), joined)
    return found.state, found.reason


def test_locked_is_what_both_readings_confirm():
    state, reason = verdict(measured(inside=(1495, 1505)))
    assert state is ClockState.LOCKED
    assert reason == "SM clock locked to 1500 MHz; verified under load by the driver and inside a kernel"


@pytest.mark.parametrize("megahertz", [1485, 1515])
def test_one_per_cent_is_near_enough(megahertz):
    assert verdict(measured(driver=megahertz, inside=(megahertz,)))[0] is ClockState.LOCKED


@pytest.mark.parametrize(
    ("readings", "words"),
    [
        ({"driver": 1755, "inside": (1500,)}, "but 1755 MHz were measured under load"),
        ({"driver": 1500, "inside": (1755,)}, "but 1755 MHz were measured under load"),
        ({"driver": 1500, "inside": (1500, 1484)}, "but 1484 MHz were measured under load"),
        ({"driver": 1516, "inside": (1500,)}, "but 1516 MHz were measured under load"),
        ({"driver": 1500, "inside": ()}, "but not verified inside a kernel"),
        ({"driver": None}, "but not verified by the driver"),
    ],
)
def test_the_drivers_word_alone_is_not_believed(readings, words):
    state, reason = verdict(measured(**readings))
    assert state is ClockState.UNLOCKED
    assert reason.startswith("locked to 1500 MHz according to the driver, ")
    assert words in reason


def test_one_session_of_several_is_enough_to_doubt():
    series = [look(at_ms, sm_clock_mhz=1500 if at_ms < 1000 else 1700) for at_ms in range(0, 2001, 50)]
    sessions = [
        session(report(four_blocks(110)), 0, 1000),
        session(report(four_blocks(1110), number=1), 1000, 2000),
    ]
    state, reason = verdict(join(series, sessions, exclusive=True, trace=None))
    assert state is ClockState.UNLOCKED
    assert "1700 MHz" in reason


def test_a_session_without_timed_calls_need_not_verify_anything():
    sessions = [session(report(four_blocks(), probes=(1500,))), session(report([], number=1, probes=()), 1000, 1100)]
    assert verdict(join(looks(0, 1100), sessions, exclusive=True, trace=None))[0] is ClockState.LOCKED


def test_where_nothing_was_timed_nothing_is_verified():
    joined = join(looks(0, 1000), [session(report([]))], exclusive=True, trace=None)
    assert verdict(joined) == (
        ClockState.UNLOCKED,
        "locked to 1500 MHz according to the driver, but not verified: nothing was timed",
    )


def test_where_looks_could_not_be_joined_the_reason_is_given():
    joined = join(looks(0, 1000), [session(report(four_blocks()), 0, 200)], exclusive=True, trace=None)
    state, reason = verdict(joined)
    assert state is ClockState.UNLOCKED
    assert "not verified: block 1 of a session lies outside" in reason


SYMBOLIC = {"requested": "base", "set_sm_mhz": None}


def test_verdict_base_clock_equal_and_steady_is_locked():
    assert verdict(measured(driver=1590, inside=(1600,)), **SYMBOLIC)[0] is ClockState.LOCKED


def test_verdict_base_clock_different_readings_is_unlocked():
    state, reason = verdict(measured(driver=1590, inside=(1595, 1700)), **SYMBOLIC)
    assert (state, reason) == (
        ClockState.UNLOCKED,
        "locked to base according to the driver, but 1590 MHz by the driver are 1700 MHz inside a kernel",
    )


def test_a_clock_without_a_number_that_moves_is_not_believed():
    series = [look(at_ms, sm_clock_mhz=1500 if at_ms != 250 else 1600) for at_ms in range(0, 1001, 50)]
    joined = join(series, [session(report(four_blocks()))], exclusive=True, trace=None)
    assert verdict(joined, **SYMBOLIC) == (
        ClockState.UNLOCKED,
        "locked to base according to the driver, but under load the clock moved between 1500 and 1600 MHz",
    )


def test_a_memory_clock_that_is_not_what_was_set_is_told():
    state, reason = verdict(measured(mem_clock_mhz=1313), set_memory_mhz=2619)
    assert state is ClockState.UNLOCKED
    assert "memory clock, locked to 2619 MHz, was 1313 MHz" in reason


def test_what_was_not_locked_is_told_in_the_words_of_the_lock():
    assert verdict(measured(), locked=False, set_sm_mhz=None, reason="policy observe: nothing was changed") == (
        ClockState.UNLOCKED,
        "policy observe: nothing was changed",
    )


@pytest.mark.parametrize("locked", [True, False])
def test_throttled_comes_first(locked):
    joined = join(
        [look(at_ms, CAP) for at_ms in range(0, 1001, 50)],
        [session(report(four_blocks()))],
        exclusive=True,
        trace=None,
    )
    state, reason = verdict(joined, locked=locked)
    assert state is ClockState.THROTTLED
    assert "sw_power_cap" in reason


def test_clocks_told_has_requested_set_measured_and_reset():
    set_ = clocks(requested_memory="max", set_memory_mhz=2619, reset=ResetState.CONFIRMED, reset_reason="seen to leave")
    told = clocks_info(set_, measured(driver=1490, inside=(1500, 1506)))
    assert (told.requested, told.requested_memory, told.set_sm_mhz, told.set_memory_mhz) == ("1500", "max", 1500, 2619)
    assert (told.driver_sm_mhz, told.kernel_sm_mhz) == (1490, 1503)
    assert (told.set_reason, told.reset, told.reset_reason) == (set_.reason, "confirmed", "seen to leave")


def test_clocks_not_seen_under_load_are_not_recorded():
    joined = join(looks(0, 1000), [session(report([], probes=()))], exclusive=True, trace=None)
    told = clocks_info(clocks(), joined)
    assert (told.driver_sm_mhz, told.kernel_sm_mhz) == (None, None)
