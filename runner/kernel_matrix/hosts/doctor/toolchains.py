"""The driver and the GPUs against each toolchain of the matrix."""

from __future__ import annotations

from collections.abc import Iterator

from kernel_matrix.compatibility import compatibility
from kernel_matrix.hosts.doctor.check_result import CheckResult, ok, warn
from kernel_matrix.hosts.doctor.host import Host, named
from kernel_matrix.matrix import Toolchain
from kernel_matrix.plan import devices_matching
from kernel_matrix.platforms import Gpu


def check(host: Host) -> Iterator[CheckResult]:
    """Every GPU that the matrix wants runs what every toolchain brings; one that does not makes the matrix smaller."""
    if host.matrix is None:
        return
    gpus = tuple(gpu for gpu in host.gpus if any(devices_matching(axis, (gpu,)) for axis in host.matrix.gpus))
    for toolchain in host.matrix.toolchains if gpus else ():
        if toolchain.cuda is not None:
            yield from _against(toolchain, toolchain.cuda, gpus)


def _against(toolchain: Toolchain, cuda: str, gpus: tuple[Gpu, ...]) -> Iterator[CheckResult]:
    subject = f"toolchain {toolchain.name}"
    what = f"CUDA {cuda}, torch {toolchain.torch}"
    troubles: dict[tuple[str, str], list[Gpu]] = {}
    for gpu in gpus:
        if trouble := _trouble(toolchain, cuda, gpu):
            troubles.setdefault(trouble, []).append(gpu)
    for (found, advice), affected in troubles.items():
        yield warn(subject, f"{named(affected)}: {found}", advice)
    gaps = compatibility().gaps(cuda=cuda, torch=toolchain.torch)
    if gaps:
        yield warn(subject, "; ".join(gaps), "its cells are tried all the same")
    if not troubles and not gaps:
        yield ok(subject, f"{what}: {named(gpus)} can run it")


def _trouble(toolchain: Toolchain, cuda: str, gpu: Gpu) -> tuple[str, str] | None:
    """Why ``gpu`` cannot run the toolchain, or not all of it, and what to do; null: it can."""
    table, torch = compatibility(), toolchain.torch
    if obstacle := table.driver_obstacle(cuda=cuda, driver=gpu.driver, cuda_driver=gpu.cuda_driver):
        return obstacle, "update the driver; until then its cells are planned and not run here"
    capability = gpu.compute_capability
    if obstacle := table.code_obstacle(cuda=cuda, torch=torch, compute_capability=capability, driver=gpu.driver):
        return obstacle, "run this GPU with another toolchain; these cells are planned and not run here"
    if note := table.driver_note(cuda=cuda, driver=gpu.driver):
        return note, "update the driver, where cells fail for want of a kernel image"
    return None
