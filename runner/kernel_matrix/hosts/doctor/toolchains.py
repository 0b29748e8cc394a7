"""Compatibility of the driver and the GPUs with each toolchain of the matrix."""

from __future__ import annotations

from collections.abc import Iterator

from kernel_matrix.errors import PythonEnvironmentError
from kernel_matrix.hosts.doctor.host import Host
from kernel_matrix.hosts.survey import read_toolchain, with_environment
from kernel_matrix.matrix import Toolchain
from kernel_matrix.plan import devices_matching
from kernel_matrix.platforms import Gpu, named
from kernel_matrix.platforms.check_result import CheckResult, ok, warn
from kernel_matrix.platforms.registry import get_platform


def check(host: Host) -> Iterator[CheckResult]:
    """Check that every GPU of the matrix can run every toolchain of its platform.

    A GPU that cannot is only a warning: the matrix has fewer cells on this host.
    """
    if host.matrix is None:
        return
    gpus = tuple(gpu for gpu in host.gpus if any(devices_matching(axis, (gpu,)) for axis in host.matrix.gpus))
    for toolchain in host.matrix.toolchains:
        if toolchain.environment:
            yield from _check_environment(toolchain, gpus)
        else:
            yield from _check_toolchain(toolchain, gpus)


def _check_environment(toolchain: Toolchain, gpus: tuple[Gpu, ...]) -> Iterator[CheckResult]:
    """Check that the environment can be used at all, and that the GPUs of its platform can run it."""
    try:
        environment = read_toolchain(toolchain)
    except PythonEnvironmentError as error:
        yield warn(f"toolchain {toolchain.name}", error.what, error.next_step)
        return
    known = with_environment(toolchain, environment)
    yield from _check_toolchain(known, gpus)
    triton = f"Triton {known.triton}" if known.triton else "no Triton"
    found = f"{environment.prefix}: {environment.python}, torch {known.torch}, {triton}, for {known.platform}"
    yield ok(f"environment {toolchain.name}", found)


def _check_toolchain(toolchain: Toolchain, candidates: tuple[Gpu, ...]) -> Iterator[CheckResult]:
    gpus = tuple(gpu for gpu in candidates if gpu.platform == toolchain.platform)
    if not gpus:
        return
    subject = f"toolchain {toolchain.name}"
    toolkit = [f"{name.upper()} {text}" for name, text in toolchain.versions.items() if name not in ("torch", "triton")]
    versions = ", ".join((*toolkit, f"torch {toolchain.torch}"))
    reasons: dict[tuple[str, str], list[Gpu]] = {}
    for gpu in gpus:
        if reason := _find_skip_reason(toolchain, gpu):
            reasons.setdefault(reason, []).append(gpu)
    for (found, advice), affected in reasons.items():
        yield warn(subject, f"{named(affected)}: {found}", advice)
    gaps = get_platform(toolchain.platform).toolchain_gaps(toolchain.versions)
    if gaps:
        yield warn(subject, "; ".join(gaps), "nothing to do: its cells run nevertheless")
    if not reasons and not gaps:
        yield ok(subject, f"{versions}: {named(gpus)} can run it")


def _find_skip_reason(toolchain: Toolchain, gpu: Gpu) -> tuple[str, str] | None:
    """Return why ``gpu`` cannot run all of the toolchain and what to do, or ``None`` if it can."""
    platform, versions = get_platform(gpu.platform), toolchain.versions
    if reason := platform.driver_skip_reason(versions, gpu):
        return reason, "update the driver; until then its cells are planned and not run here"
    if reason := platform.code_skip_reason(versions, gpu.compute_capability, gpu.driver):
        return reason, "run this GPU with another toolchain; these cells are planned and not run here"
    if note := platform.driver_note(versions, gpu.driver):
        return note, "update the driver if cells fail because they have no kernel image for the device"
    return None
