"""The matrix file, and those of its GPUs that this host has."""

from __future__ import annotations

from collections.abc import Iterator

from kernel_matrix.hosts.doctor.host import Host
from kernel_matrix.plan import devices_matching
from kernel_matrix.platforms import Gpu, named
from kernel_matrix.platforms.check_result import CheckResult, fail, ok, warn
from kernel_matrix.platforms.registry import get_platform

_SUBJECT = "matrix"


def check(host: Host) -> Iterator[CheckResult]:
    """Check that there is a matrix, and that this host has some of its GPUs."""
    if host.matrix is None:
        skipped = "toolchains, images and policies are not checked"
        yield warn(_SUBJECT, f"{host.matrix_reason}: {skipped}", "name one: kernel-matrix doctor --matrix FILE")
        return
    devices = (*get_platform("cpu").inventory().gpus, *host.gpus)
    here = {axis.name: found for axis in host.matrix.gpus if (found := devices_matching(axis, devices))}
    absent = [axis.name for axis in host.matrix.gpus if axis.name not in here]
    rest = f"; not here: {', '.join(absent)}" if absent else ""
    if not here:
        reason = f"{host.matrix.path}: none of its devices is here{rest}"
        yield fail(_SUBJECT, reason, "kernel-matrix plan --all says why")
        return
    present = "; ".join(f"{name} is {_describe(gpus)}" for name, gpus in here.items())
    unnamed = [gpu for gpu in host.gpus if not any(gpu in gpus for gpus in here.values())]
    rest += f"; not named by it: {named(unnamed)}" if unnamed else ""
    yield ok(_SUBJECT, f"{host.matrix.path}: {present}{rest}")


def _describe(gpus: tuple[Gpu, ...]) -> str:
    return "the CPU" if not get_platform(gpus[0].platform).IS_ACCELERATOR else named(gpus)
