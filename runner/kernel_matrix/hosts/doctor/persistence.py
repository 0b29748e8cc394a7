"""Persistence mode: whether the driver keeps a GPU initialised, with its settings, while nobody uses it."""

from __future__ import annotations

from kernel_matrix.hosts.doctor.host import Host, advice_about, per_gpu
from kernel_matrix.platforms import Gpu
from kernel_matrix.platforms.check_result import CheckResult, ok, warn
from kernel_matrix.platforms.registry import get_platform

_SUBJECT = "persistence mode"


@per_gpu(_SUBJECT)
def check(gpu: Gpu, _host: Host) -> CheckResult:
    """It is on; off, each cell waits for the GPU to be initialised, and clocks and temperature begin elsewhere."""
    on = get_platform(gpu.platform).modes(gpu).persistence
    if on is None:
        return ok(_SUBJECT, "the driver does not say")
    if on:
        return ok(_SUBJECT, "on")
    found = "off: the driver lets go of the GPU, and of its settings, whenever nobody uses it"
    return warn(_SUBJECT, found, advice_about(gpu, "persistence"))
