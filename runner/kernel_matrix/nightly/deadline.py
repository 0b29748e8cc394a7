"""A time of day as a deadline."""

from __future__ import annotations

import re
import time
from datetime import datetime, timedelta, timezone
from typing import Final

from kernel_matrix.errors import UsageError

_TIME: Final = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)")


def time_of_day(option: str, text: str) -> tuple[int, int]:
    """Parse the hour and minute of ``HH:MM``.

    Raises:
        UsageError: for anything else, naming ``option``.
    """
    found = _TIME.fullmatch(text)
    if found is None:
        raise UsageError(f"{option} {text!r} is no time of day", next_step="give a local time as HH:MM, e.g. 05:30")
    return int(found[1]), int(found[2])


def next_time(option: str, text: str, now: datetime) -> datetime:
    """Find the next time after ``now`` at which a local clock shows ``HH:MM``.

    Args:
        option: what ``text`` was given for, to name it in an error.
        text: the time of day.
        now: local time without a zone, so that a change to or from summer time in between is honoured.

    Returns:
        The time, with the zone that holds then.

    Raises:
        UsageError: ``text`` has another form, or names the present minute: then it may mean now or tomorrow.
    """
    hour, minute = time_of_day(option, text)
    then = now.replace(hour=hour, minute=minute, second=0, microsecond=0)
    if then == now.replace(second=0, microsecond=0):
        raise UsageError(
            f"{option} {text} is the present minute: today that deadline has been reached, tomorrow it is a day away",
            next_step="give a later minute; the minute before this one is taken for tomorrow's",
        )
    return (then if then > now else then + timedelta(days=1)).astimezone()


def on_monotonic_clock(then: datetime) -> float:
    """Return what :func:`time.monotonic` will be at ``then``."""
    return time.monotonic() + (then - datetime.now(timezone.utc)).total_seconds()
