"""Phases: all time from the first one to the end is counted exactly once."""

import itertools

import pytest

from kernel_matrix.inside import phases as module
from kernel_matrix.inside.phases import Phases


@pytest.fixture(autouse=True)
def seconds(monkeypatch):
    """A clock that advances by one second at each reading."""
    looks = itertools.count(100)
    monkeypatch.setattr(module.time, "monotonic", lambda: float(next(looks)))


def test_a_phase_lasts_until_the_next():
    phases = Phases()
    for name in ("load", "verify", "load"):
        phases.enter(name)
    assert phases.ended() == {"load": 2.0, "verify": 1.0}


def test_after_the_end_no_time_counts():
    phases = Phases()
    phases.enter("load")
    assert phases.ended() == phases.ended() == {"load": 1.0}


def test_time_before_the_first_is_nobodys():
    assert Phases().ended() == {}
