"""Check of a device after use: own processes and their memory must be gone."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from kernel_matrix.lease.exclusivity import unexplained_memory
from kernel_matrix.lease.gpu_processes import named
from kernel_matrix.lease.kept_processes import KeptProcesses
from kernel_matrix.lease.watch import PERIOD_S, DeviceSnapshot, DeviceWatch

_LIMIT_S = 10.0
"""Longest wait for the driver to clean up; generous, because a late clean-up would quarantine a good GPU."""
_SLACK_BYTES = 64 << 20
"""Tolerance for the driver's own use; the smallest context of a process takes several times as much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseCheck:
    """Remains of a cell on its device. ``None``: unknown, for the given ``reason``."""

    processes_gone: bool | None = None
    memory_back: bool | None = None
    """``True`` if the memory in use is what it was before, within 64 MiB."""
    reason: str
    """Explanation of both values."""


def await_aftermath(watch: DeviceWatch, kept: KeptProcesses) -> ReleaseCheck:
    """Watch until the device is as at the first snapshot, for at most ten seconds. The watch must be running.

    The cell's processes have ended already, except for those that are ``kept``, but the driver takes time to clean
    up after them.
    """
    if watch.blind:
        return ReleaseCheck(reason="a CPU has no list of processes, and no memory of its own")
    if watch.lost:
        return _unknown(watch.lost)
    before, deadline = watch.snapshots[0], time.monotonic() + _LIMIT_S
    while True:
        now = watch.take_now()
        if watch.lost:
            return _unknown(watch.lost)
        left = sorted(set(now.own) - kept.among(now.own))
        # What stays has memory of its own, more or less than before: the next lease begins with it.
        comparable = not (kept.roots or before.own)
        memory_back = _memory_back(now, before) if comparable else None
        is_final = not now.trouble and not left and (bool(now.foreign) or memory_back is not False)
        if is_final or time.monotonic() >= deadline:
            break
        time.sleep(PERIOD_S)
    if now.trouble:
        return _unknown(now.trouble)
    company = bool(now.foreign or before.foreign or unexplained_memory(before)) or not watch.can_attribute
    count = len(now.own) - len(left)
    stays = f"; {count} processes stay for the next cell" if count else ""
    processes = _describe_processes(now, left, can_attribute=watch.can_attribute)
    return ReleaseCheck(
        processes_gone=not left if watch.can_attribute else None,
        # Memory that foreign processes may have taken is no evidence against this device.
        memory_back=None if company and not memory_back else memory_back,
        reason=f"{processes}{stays}; {_describe_memory(now, before)}",
    )


def _memory_back(now: DeviceSnapshot, before: DeviceSnapshot) -> bool | None:
    used, was = now.sample.memory_used_bytes, before.sample.memory_used_bytes
    if used is None or was is None:
        return None
    return used <= was + _SLACK_BYTES


def _describe_processes(now: DeviceSnapshot, left: Sequence[int], *, can_attribute: bool) -> str:
    if not can_attribute:
        return "the listed processes cannot be attributed here"
    others = f"foreign: {named(now.foreign)}" if now.foreign else ""
    ours = f"still listed: {named(left)}" if left else "none of our processes is listed"
    return f"{ours}; {others}" if others else ours


def _describe_memory(now: DeviceSnapshot, before: DeviceSnapshot) -> str:
    used, was = now.sample.memory_used_bytes, before.sample.memory_used_bytes
    if used is None or was is None:
        return "the driver does not say how much memory is in use"
    return f"{used >> 20} MiB in use, {was >> 20} MiB before"


def _unknown(why: str) -> ReleaseCheck:
    return ReleaseCheck(reason=f"the device does not answer: {why}")
