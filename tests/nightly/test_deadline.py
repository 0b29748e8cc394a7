"""A time of day as a deadline."""

from __future__ import annotations

import time
from datetime import datetime, timedelta, timezone

import pytest

from kernel_matrix.errors import UsageError
from kernel_matrix.nightly.deadline import next_time, on_monotonic_clock

EVENING = datetime(2026, 3, 28, 22, 15)  # noqa: DTZ001  # local, as it is asked for
AUTUMN = datetime(2026, 10, 24, 22, 15)  # noqa: DTZ001  # the same


@pytest.fixture
def berlin(monkeypatch):
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("text", "day", "clock"),
    [("06:30", 29, (6, 30)), ("6:30", 29, (6, 30)), ("22:14", 29, (22, 14)), ("22:16", 28, (22, 16))],
)
def test_it_is_the_next_time_that_a_clock_shows_it(text, day, clock):
    then = next_time("--until", text, EVENING)
    assert (then.day, (then.hour, then.minute)) == (day, clock)
    assert then.tzinfo is not None


@pytest.mark.parametrize(("evening", "hours"), [(EVENING, 7), (AUTUMN, 9)], ids=["to_summer_time", "from_summer_time"])
def test_next_time_over_a_clock_change_counts_real_hours(evening, hours, berlin):
    then = next_time("--until", "06:15", evening)
    assert (then.astimezone(timezone.utc) - evening.astimezone(timezone.utc)).total_seconds() == hours * 3600


@pytest.mark.parametrize("second", [0, 59])
def test_next_time_in_the_present_minute_is_refused(second):
    with pytest.raises(UsageError, match=r"--until 22:15 is the present minute: today .*, tomorrow .*"):
        next_time("--until", "22:15", EVENING.replace(second=second))


def test_on_monotonic_clock_is_as_far_away_as_the_time():
    then = datetime.now(timezone.utc) + timedelta(hours=1)
    assert on_monotonic_clock(then) - time.monotonic() == pytest.approx(3600, abs=5)


@pytest.mark.parametrize("text", ["", "24:00", "6", "06:60", "06:30:00", "noon", "-1:00", "06:30\n"])
def test_what_is_no_time_is_refused_by_the_options_name(text):
    with pytest.raises(UsageError, match="--until"):
        next_time("--until", text, EVENING)
