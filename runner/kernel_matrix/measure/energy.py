"""Energy of one call, from readings of the driver's counter while calls kept the device busy.

A reading gives the mean power between two changes of the counter; that times the time per call is the energy of a
call. All that the board takes is in it, idle power too. What the counter's steps leave open bounds it.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean
from typing import Any

from kernel_matrix.measure.intervals import Interval
from kernel_matrix.measure.timed import CANDIDATE, EAGER


def joules_per_call(workload: Mapping[str, Any], contestant: str) -> Interval | None:
    """Return the mean of a contestant's readings in one session, and its bounds by the counter's steps.

    Args:
        workload: A workload in a checked record's document.
        contestant: ``candidate`` or an implementation's name.

    Returns:
        Joules; None without readings that count. The bounds say nothing about other sessions.
    """
    readings = [one for one in workload.get("energies", ()) if one["contestant"] == contestant]
    found = [_of_reading(one) for one in readings if one.get("discarded") is None]
    if not found:
        return None
    return Interval(*(fmean(numbers) for numbers in zip(*found, strict=True)))


def energy_ratio(workload: Mapping[str, Any]) -> Interval | None:
    """Return the baseline's energy ÷ the candidate's in one session, with bounds by the counter's steps.

    Above 1, the candidate takes less. None unless both are known and above 0.
    """
    ours, theirs = joules_per_call(workload, CANDIDATE), joules_per_call(workload, EAGER)
    if ours is None or theirs is None or min(ours.low, theirs.low) <= 0:
        return None
    return Interval(theirs.estimate / ours.estimate, theirs.low / ours.high, theirs.high / ours.low)


def _of_reading(reading: Mapping[str, Any]) -> tuple[float, float, float]:
    """Return joules per call: estimate, least and most."""
    joules = reading["energy_mj"] / 1000
    call_ns = (reading["ended_ns"] - reading["started_ns"]) / reading["calls"]
    least, most = joules * call_ns / reading["longest_ns"], joules * call_ns / reading["shortest_ns"]
    return joules * call_ns / fmean((reading["longest_ns"], reading["shortest_ns"])), least, most
