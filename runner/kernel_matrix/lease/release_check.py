"""Check of a device after use: own processes and their memory must be gone."""

from __future__ import annotations

import time
from dataclasses import dataclass

from kernel_matrix.lease.exclusivity import suspicion
from kernel_matrix.lease.gpu_processes import named
from kernel_matrix.lease.watch import PERIOD_S, DeviceSnapshot, DeviceWatch

_LIMIT_S = 10.0
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


def await_aftermath(watch: DeviceWatch) -> ReleaseCheck:
    """Watch until the device is as at the first snapshot, for at most ten seconds. The watch must be running.

    The cell's processes have ended already, but the driver takes time to clean up after them.
    """
    if watch.blind:
        return ReleaseCheck(reason="a CPU has no list of processes, and no memory of its own")
    if watch.lost:
        return _unknown(watch.lost)
    before, deadline = watch.looks[0], time.monotonic() + _LIMIT_S
    while True:
        look = watch.look_now()
        if watch.lost:
            return _unknown(watch.lost)
        if _clean(look, before) or time.monotonic() >= deadline:
            break
        time.sleep(PERIOD_S)
    return _unknown(look.trouble) if look.trouble else _told(look, before, tells_apart=watch.tells_apart)


def _clean(look: DeviceSnapshot, before: DeviceSnapshot) -> bool:
    """Return whether further snapshots cannot change the result."""
    return not look.trouble and not look.own and (bool(look.foreign) or _memory_back(look, before) is not False)


def _told(look: DeviceSnapshot, before: DeviceSnapshot, *, tells_apart: bool) -> ReleaseCheck:
    back = _memory_back(look, before)
    company = bool(look.foreign or before.foreign or suspicion(before)) or not tells_apart
    return ReleaseCheck(
        processes_gone=not look.own if tells_apart else None,
        # Memory that foreign processes may have taken is no evidence against this device.
        memory_back=None if company and not back else back,
        reason=f"{_of_processes(look, tells_apart=tells_apart)}; {_of_memory(look, before)}",
    )


def _memory_back(look: DeviceSnapshot, before: DeviceSnapshot) -> bool | None:
    used, was = look.sample.memory_used_bytes, before.sample.memory_used_bytes
    if used is None or was is None:
        return None
    return used <= was + _SLACK_BYTES


def _of_processes(look: DeviceSnapshot, *, tells_apart: bool) -> str:
    if not tells_apart:
        return "whose processes are listed cannot be told here"
    others = f"foreign: {named(look.foreign)}" if look.foreign else ""
    ours = f"still listed: {named(look.own)}" if look.own else "none of our processes is listed"
    return f"{ours}; {others}" if others else ours


def _of_memory(look: DeviceSnapshot, before: DeviceSnapshot) -> str:
    used, was = look.sample.memory_used_bytes, before.sample.memory_used_bytes
    if used is None or was is None:
        return "the driver does not say how much memory is in use"
    return f"{used >> 20} MiB in use, {was >> 20} MiB before"


def _unknown(why: str) -> ReleaseCheck:
    return ReleaseCheck(reason=f"the device does not answer: {why}")
