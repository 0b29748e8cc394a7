"""Work of one kind runs at the same time, work of different kinds in turn, in the order of asking."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from kernel_matrix.attempt.turns import Turns
from tests.baddays.living import until


@pytest.fixture
def turns():
    return Turns()


@pytest.fixture
def ask(turns):
    """Asks for a turn in a thread, and returns when it has begun or waits, with the events that say so and end it."""
    ends = []

    def asked(kind):
        began, may_end = threading.Event(), threading.Event()
        waiting = len(turns._waiting)

        def work():
            with turns.turn(kind):
                began.set()
                assert may_end.wait(20)

        ends.append(may_end)
        executor.submit(work)
        until(lambda: began.is_set() or len(turns._waiting) > waiting)
        return began, may_end

    with ThreadPoolExecutor(8) as executor:
        yield asked
        for end in ends:
            end.set()


def test_work_of_one_kind_runs_at_the_same_time(ask):
    assert all(ask("build")[0].is_set() for _ in range(3))


def test_another_kind_waits_until_all_have_ended(ask):
    (_, first), (_, second) = ask("build"), ask("build")
    timed, _ = ask("timed")
    first.set()
    assert not timed.wait(0.1)
    second.set()
    assert timed.wait(20)


def test_who_asks_later_does_not_overtake(ask):
    _, build = ask("build")
    timed, timed_may_end = ask("timed")
    later, _ = ask("build")
    assert not later.is_set()
    build.set()
    assert timed.wait(20)
    assert not later.is_set()
    timed_may_end.set()
    assert later.wait(20)


def test_a_failure_ends_the_turn(turns):
    with pytest.raises(ZeroDivisionError), turns.turn("build"):
        _ = 1 / 0
    with turns.turn("timed"):
        pass
