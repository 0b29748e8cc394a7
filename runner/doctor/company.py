"""Who is on each GPU at this moment, listed by the driver or not."""

from __future__ import annotations

from collections.abc import Iterator

from runner.doctor.finding import Finding, ok, warn
from runner.doctor.host import Host, per_gpu
from runner.gpus import Gpu, vendor
from runner.lease.alone import SUSPICIOUS_BYTES
from runner.lease.tenants import named, pids_mean_something

_SUBJECT = "processes now"
_MEMORY = "memory in use"


def check(host: Host) -> Iterator[Finding]:
    """Nobody is on a GPU, and nobody hides."""
    yield from _processes(host)
    yield from _memory(host)


@per_gpu(_SUBJECT)
def _processes(gpu: Gpu, _host: Host) -> Finding:
    """Nobody is; a cell would wait for them, and end as ``gpu_busy``."""
    pids = vendor(gpu.vendor).processes(gpu)
    if not pids:
        return ok(_SUBJECT, "nobody")
    who = named(pids) if pids_mean_something() else f"{len(pids)}, whose PIDs mean nothing in this namespace"
    return warn(_SUBJECT, who, "cells wait for them (policy.gpu_wait_s): end them, or run when they have ended")


@per_gpu(_MEMORY)
def _memory(gpu: Gpu, _host: Host) -> Finding:
    """Whoever uses memory is somebody the driver lists."""
    used = vendor(gpu.vendor).snapshot(gpu)["memory_used_bytes"]
    if not isinstance(used, int):
        return ok(_MEMORY, "the driver does not say")
    found = f"{used >> 20} MiB"
    if used <= SUSPICIOUS_BYTES or vendor(gpu.vendor).processes(gpu):
        return ok(_MEMORY, found)
    advice = "look for containers, virtual machines or dying processes on it; records will call it suspicious"
    return warn(_MEMORY, f"{found}, with no process listed", advice)
