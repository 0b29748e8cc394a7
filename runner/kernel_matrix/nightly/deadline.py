"""A time of day as a deadline."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Final

from kernel_matrix.errors import UsageError

_TIME: Final = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)")


def time_of_day(option: str, text: str) -> tuple[int, int]:
    """Hour and minute of ``HH:MM``.

    :raises UsageError: for anything else, naming ``option``.
    """
    found = _TIME.fullmatch(text)
    if found is None:
        raise UsageError(f"{option} {text!r}: give a local time as HH:MM, e.g. 05:30")
    return int(found[1]), int(found[2])


def next_time(option: str, text: str, now: datetime) -> datetime:
    """The next time after ``now`` that a clock here shows ``HH:MM``.

    :param now: local time without a zone, so that a change to or from summer time in between is honoured.
    :returns: with the zone that holds then.
    :raises UsageError: for another form.
    """
    hour, minute = time_of_day(option, text)
    then = now.replace(hour=hour, minute=minute, second=0, microsecond=0)
    return (then if then > now else then + timedelta(days=1)).astimezone()
