"""Persistence mode, in which the driver keeps a GPU initialised, with its settings, while no process uses it."""

from __future__ import annotations

from kernel_matrix.hosts.doctor.host import Host, advice_about, per_gpu
from kernel_matrix.platforms import Gpu
from kernel_matrix.platforms.check_result import CheckResult, ok, warn
from kernel_matrix.platforms.registry import get_platform

_SUBJECT = "persistence mode"


@per_gpu(_SUBJECT)
def check(gpu: Gpu, _host: Host) -> CheckResult:
    """Check that it is on: without it each cell waits for the GPU, and starts at other clocks and temperatures."""
    on = get_platform(gpu.platform).modes(gpu).persistence
    if on is None:
        return ok(_SUBJECT, "the driver does not report it")
    if on:
        return ok(_SUBJECT, "on")
    found = "off: the driver unloads the GPU, and loses its settings, while no process uses it"
    return warn(_SUBJECT, found, advice_about(gpu, "persistence"))
