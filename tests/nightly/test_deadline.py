"""A time of day as a deadline."""

from __future__ import annotations

import time
from datetime import datetime, timezone

import pytest

from kernel_matrix.errors import UsageError
from kernel_matrix.nightly.deadline import next_time

EVENING = datetime(2026, 3, 28, 22, 15)  # noqa: DTZ001  # local, as it is asked for


@pytest.fixture
def berlin(monkeypatch):
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("text", "day", "clock"),
    [("06:30", 29, (6, 30)), ("6:30", 29, (6, 30)), ("22:15", 29, (22, 15)), ("22:16", 28, (22, 16))],
)
def test_it_is_the_next_time_that_a_clock_shows_it(text, day, clock):
    then = next_time("--until", text, EVENING)
    assert (then.day, (then.hour, then.minute)) == (day, clock)
    assert then.tzinfo is not None


def test_a_night_in_which_the_clocks_change_is_an_hour_shorter(berlin):
    then = next_time("--until", "06:15", EVENING)
    assert (then.astimezone(timezone.utc) - EVENING.astimezone(timezone.utc)).total_seconds() == 7 * 3600


@pytest.mark.parametrize("text", ["", "24:00", "6", "06:60", "06:30:00", "noon", "-1:00", "06:30\n"])
def test_what_is_no_time_is_refused_by_the_options_name(text):
    with pytest.raises(UsageError, match="--until"):
        next_time("--until", text, EVENING)
