"""Checks for exclusive use of a device: modes that rule it out, the wait for other processes, and remaining doubts."""

from __future__ import annotations

import time

from kernel_matrix.errors import GpuRefusedError
from kernel_matrix.lease.gpu_processes import named
from kernel_matrix.lease.locks import LeaseWait
from kernel_matrix.lease.terms import LeaseTerms
from kernel_matrix.lease.watch import PERIOD_S, DeviceSnapshot, DeviceWatch
from kernel_matrix.platforms import DeviceModes, Gpu

SUSPICIOUS_BYTES = 512 << 20
"""Memory in use above this must have a user, though the driver lists none; the driver's own use is less."""
_SETTLING_S = 2.0
"""Seconds for the driver to free the memory of processes that have just ended."""

IDLE_PERCENT = 5
"""A device without work of ours is in use above this utilisation; the driver averages over a second at most."""

_DIVIDED = "divided into parts (MIG instances or compute partitions)"
_NAMESPACE = "this runner sits in a PID namespace of its own, where the driver's PIDs mean nothing"


def check_exclusivity(gpu: Gpu, modes: DeviceModes, terms: LeaseTerms, *, can_attribute: bool) -> tuple[str, ...]:
    """Return the reasons why exclusive use of ``gpu`` cannot be proven, if ``terms`` accept them.

    Args:
        gpu: The device.
        modes: Its modes.
        terms: Conditions of the lease.
        can_attribute: ``True`` if the driver's PIDs are those that the runner sees.

    Raises:
        GpuRefusedError: ``terms`` do not accept a reason.
    """
    if modes.mig and not terms.allow_mig:
        raise _refused(gpu, f"it is {_DIVIDED}", "Make it one device again, or set policy.allow_mig = true.")
    if modes.mps and not terms.allow_mps:
        raise _refused(gpu, "an MPS server shares it out", "Stop the MPS server, or set policy.allow_mps = true.")
    if terms.require_proof and not can_attribute:
        step = "Run outside the container, or start that with `--pid=host`, or set policy.exclusive = true."
        raise _refused(gpu, _NAMESPACE, step)
    found = {
        f"it is {_DIVIDED}, which share clocks, power and memory": modes.mig,
        "an MPS server shares it out": modes.mps,
        f"{_NAMESPACE}: only memory and load were looked at, before the cell": not can_attribute,
        "policy exclusive = false: others were not kept off": not terms.exclusive,
    }
    return tuple(words for words, holds in found.items() if holds)


def await_exclusive(
    watch: DeviceWatch, terms: LeaseTerms, wait: LeaseWait, *, has_own: bool = False
) -> tuple[str, ...]:
    """Wait until the device has no foreign process (check once if ``terms`` allow them); return suspicions.

    Where processes cannot be attributed, wait until the device seems idle.

    Args:
        watch: Watch of the device.
        terms: Conditions of the lease.
        wait: The wait, which has a limit.
        has_own: Processes of this runner are on the device already, so that its memory says nothing.

    Raises:
        kernel_matrix.errors.GpuBusyError: A foreign process is still there at the end of ``wait``.
        kernel_matrix.errors.InfrastructureError: The driver gives no list.
    """
    if not watch.can_attribute:
        _await_idle(watch, terms, wait, has_own=has_own)
        return ()
    snapshot = _await_no_foreign(watch, terms, wait)
    settled = time.monotonic() + min(_SETTLING_S, wait.left_s)
    while unexplained_memory(snapshot) and time.monotonic() < settled:
        time.sleep(PERIOD_S)
        snapshot = _await_no_foreign(watch, terms, wait)
    return tuple(filter(None, [unexplained_memory(snapshot)]))


def unexplained_memory(snapshot: DeviceSnapshot) -> str:
    """Return a description of memory in use that no listed process explains; empty if there is none."""
    used = snapshot.sample.memory_used_bytes or 0
    if snapshot.sample.pids or used <= SUSPICIOUS_BYTES:
        return ""
    return f"suspicious: {used >> 20} MiB were in use with no process listed"


def _await_idle(watch: DeviceWatch, terms: LeaseTerms, wait: LeaseWait, *, has_own: bool) -> None:
    while (signs := _signs_of_use(watch.begin(), has_own=has_own)) and terms.exclusive:
        wait.pause(f"it seems to be in use: {signs}")


def _signs_of_use(snapshot: DeviceSnapshot, *, has_own: bool) -> str:
    """Return what shows that others use a device on which nothing of ours runs; empty if nothing does."""
    used_bytes, percent = snapshot.sample.memory_used_bytes or 0, snapshot.sample.utilization_percent or 0
    signs = {
        f"{used_bytes >> 20} MiB of memory": used_bytes > SUSPICIOUS_BYTES and not has_own,
        f"{percent} % load": percent > IDLE_PERCENT,
    }
    return " and ".join(words for words, holds in signs.items() if holds)


def _await_no_foreign(watch: DeviceWatch, terms: LeaseTerms, wait: LeaseWait) -> DeviceSnapshot:
    snapshot = watch.begin()
    while terms.exclusive and snapshot.foreign:
        wait.pause(f"it is in use by {named(snapshot.foreign)}")
        snapshot = watch.begin()
    return snapshot


def _refused(gpu: Gpu, why: str, next_step: str) -> GpuRefusedError:
    return GpuRefusedError(f"{gpu.uuid} ({gpu.name}) cannot be proven ours alone: {why}", next_step=next_step)
