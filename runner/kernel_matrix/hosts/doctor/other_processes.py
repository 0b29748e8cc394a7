"""Processes that are on each GPU now, whether the driver lists them or not."""

from __future__ import annotations

from collections.abc import Iterator

from kernel_matrix.hosts.doctor.host import Host, per_gpu
from kernel_matrix.lease.exclusivity import SUSPICIOUS_BYTES
from kernel_matrix.lease.gpu_processes import named, sees_driver_pids
from kernel_matrix.platforms import Gpu
from kernel_matrix.platforms.check_result import CheckResult, ok, warn
from kernel_matrix.platforms.registry import get_platform

_SUBJECT = "processes now"
_MEMORY = "memory in use"


def check(host: Host) -> Iterator[CheckResult]:
    """Check that no process is on a GPU, neither listed nor hidden."""
    yield from _processes(host)
    yield from _memory(host)


@per_gpu(_SUBJECT)
def _processes(gpu: Gpu, _host: Host) -> CheckResult:
    """Check that the driver lists no process; a cell would wait for it, and could end as ``gpu_busy``."""
    pids = get_platform(gpu.platform).processes(gpu)
    if not pids:
        return ok(_SUBJECT, "none")
    found = named(pids) if sees_driver_pids() else f"{len(pids)}, whose PIDs mean nothing in this namespace"
    return warn(_SUBJECT, found, "cells wait for them (policy.gpu_wait_s): end them, or run when they have ended")


@per_gpu(_MEMORY)
def _memory(gpu: Gpu, _host: Host) -> CheckResult:
    """Check that the driver lists a process if memory is in use."""
    used = get_platform(gpu.platform).snapshot(gpu).get("memory_used_bytes")
    if not isinstance(used, int):
        return ok(_MEMORY, "the driver does not report it")
    found = f"{used >> 20} MiB"
    if used <= SUSPICIOUS_BYTES or get_platform(gpu.platform).processes(gpu):
        return ok(_MEMORY, found)
    advice = "look for containers, virtual machines or dying processes on it; records will call it suspicious"
    return warn(_MEMORY, f"{found}, with no process listed", advice)
