"""The driver and the GPUs against each toolchain of the matrix."""

from __future__ import annotations

from collections.abc import Iterator

from kernel_matrix.hosts.doctor.host import Host
from kernel_matrix.matrix import Toolchain
from kernel_matrix.plan import devices_matching
from kernel_matrix.platforms import Gpu, named
from kernel_matrix.platforms.check_result import CheckResult, ok, warn
from kernel_matrix.platforms.registry import get_platform


def check(host: Host) -> Iterator[CheckResult]:
    """Every GPU that the matrix wants runs what every toolchain brings; one that does not makes the matrix smaller."""
    if host.matrix is None:
        return
    gpus = tuple(gpu for gpu in host.gpus if any(devices_matching(axis, (gpu,)) for axis in host.matrix.gpus))
    for toolchain in host.matrix.toolchains:
        wanted = tuple(gpu for gpu in gpus if gpu.platform == toolchain.platform)
        if wanted:
            yield from _against(toolchain, wanted)


def _against(toolchain: Toolchain, gpus: tuple[Gpu, ...]) -> Iterator[CheckResult]:
    subject = f"toolchain {toolchain.name}"
    toolkit = [f"{name.upper()} {text}" for name, text in toolchain.versions.items() if name not in ("torch", "triton")]
    what = ", ".join((*toolkit, f"torch {toolchain.torch}"))
    troubles: dict[tuple[str, str], list[Gpu]] = {}
    for gpu in gpus:
        if trouble := _trouble(toolchain, gpu):
            troubles.setdefault(trouble, []).append(gpu)
    for (found, advice), affected in troubles.items():
        yield warn(subject, f"{named(affected)}: {found}", advice)
    gaps = get_platform(toolchain.platform).toolchain_gaps(toolchain.versions)
    if gaps:
        yield warn(subject, "; ".join(gaps), "its cells are tried all the same")
    if not troubles and not gaps:
        yield ok(subject, f"{what}: {named(gpus)} can run it")


def _trouble(toolchain: Toolchain, gpu: Gpu) -> tuple[str, str] | None:
    """Why ``gpu`` cannot run the toolchain, or not all of it, and what to do; null: it can."""
    platform, versions = get_platform(gpu.platform), toolchain.versions
    if obstacle := platform.driver_obstacle(versions, gpu):
        return obstacle, "update the driver; until then its cells are planned and not run here"
    if obstacle := platform.code_obstacle(versions, gpu.compute_capability, gpu.driver):
        return obstacle, "run this GPU with another toolchain; these cells are planned and not run here"
    if note := platform.driver_note(versions, gpu.driver):
        return note, "update the driver, where cells fail for want of a kernel image"
    return None
