"""Snapshots of a group of devices as if it were one device."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from itertools import zip_longest
from typing import TypeVar

from kernel_matrix.lease.watch import DeviceSnapshot
from kernel_matrix.platforms import EventReason, TelemetrySample

_Number = TypeVar("_Number", int, float)


def joined_snapshots(of_devices: Sequence[Sequence[DeviceSnapshot]]) -> Sequence[DeviceSnapshot]:
    """Return one snapshot for each of the first device, with what the others showed until its next one.

    A call of several ranks is as slow as the slowest, so the group has the lowest clock, the highest temperature and
    load, all processes and all reasons of its devices; power, energy and memory are sums.

    Args:
        of_devices: The snapshots of each device, oldest first.
    """
    first, *others = of_devices
    if not others:
        return first
    times = [[snapshot.sample.at_ns for snapshot in one] for one in others]
    joined, last = [], [0] * len(others)
    for snapshot, following in zip_longest(first, first[1:]):
        until_ns = following.sample.at_ns if following is not None else math.inf
        now = [max(1, bisect_left(at, until_ns)) for at in times]
        shown = [one[min(since, until - 1) : until] for one, since, until in zip(others, last, now, strict=True)]
        joined.append(_join([[snapshot], *shown]))
        last = now
    return joined


def _join(of_devices: Sequence[Sequence[DeviceSnapshot]]) -> DeviceSnapshot:
    everything = [snapshot for snapshots in of_devices for snapshot in snapshots]
    latest = [snapshots[-1].sample for snapshots in of_devices if snapshots]
    return DeviceSnapshot(
        sample=TelemetrySample(
            at_ns=latest[0].at_ns,
            sm_clock_mhz=_of(min, [one.sm_clock_mhz for one in latest]),
            mem_clock_mhz=_of(min, [one.mem_clock_mhz for one in latest]),
            power_w=_of(sum, [one.power_w for one in latest]),
            power_average_w=_of(sum, [one.power_average_w for one in latest]),
            energy_mj=_of(sum, [one.energy_mj for one in latest]),
            temperature_c=_of(max, [one.temperature_c for one in latest]),
            utilization_percent=_of(max, [one.utilization_percent for one in latest]),
            memory_used_bytes=_of(sum, [one.memory_used_bytes for one in latest]),
            reasons=_reasons(everything),
            reason_ns={
                reason: sum(one.reason_ns.get(reason, 0) for one in latest)
                for reason in EventReason
                if all(reason in one.reason_ns for one in latest)
            },
            pids=_all(snapshot.sample.pids for snapshot in everything),
        ),
        own=_all(snapshot.own for snapshot in everything),
        foreign=_all(snapshot.foreign for snapshot in everything),
        trouble="; ".join(dict.fromkeys(snapshot.trouble for snapshot in everything if snapshot.trouble)),
    )


def _of(reduce: Callable[[Iterable[_Number]], _Number], values: Sequence[_Number | None]) -> _Number | None:
    """Return one value for all devices; None if one of them does not report it."""
    known = [value for value in values if value is not None]
    return reduce(known) if len(known) == len(values) else None


def _reasons(snapshots: Sequence[DeviceSnapshot]) -> tuple[EventReason, ...] | None:
    shown = [snapshot.sample.reasons for snapshot in snapshots if snapshot.sample.reasons is not None]
    return tuple(reason for reason in EventReason if any(reason in one for one in shown)) if shown else None


def _all(pids: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(sorted({pid for some in pids for pid in some}))
