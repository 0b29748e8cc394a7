"""List, watch and calibrate the GPUs of this host; data sheets of GPUs, here or not."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from itertools import count as count_from
from pathlib import Path
from typing import Any

from kernel_matrix.api.run_cells import new_run_id
from kernel_matrix.attempt.assignment import RunContext
from kernel_matrix.attempt.calibration import CALIBRATE, measure_device
from kernel_matrix.attempt.scratch import scratch_folder
from kernel_matrix.errors import InfrastructureError, NothingSelectedError, UsageError
from kernel_matrix.hosts.process_token import owner_token
from kernel_matrix.hosts.survey import AUTO, HostSurvey, survey
from kernel_matrix.lease.terms import LeaseTerms
from kernel_matrix.matrix import Matrix, Toolchain
from kernel_matrix.matrix.load import load_matrix
from kernel_matrix.platforms import Gpu, TelemetrySample
from kernel_matrix.platforms.links import describe_links
from kernel_matrix.platforms.peaks import STATE_DIR_VARIABLE, peak_of, write_calibration
from kernel_matrix.platforms.process_names import command
from kernel_matrix.platforms.registry import get_platform, gpu_document, host_inventory, platforms
from kernel_matrix.platforms.versions import parse_version

__all__ = [
    "Gpu",
    "GpuInventory",
    "TelemetrySample",
    "calibrate_gpus",
    "describe_gpu",
    "describe_gpu_links",
    "describe_processes",
    "find_gpus",
    "inventory",
    "watch_gpus",
]


@dataclass(frozen=True, slots=True)
class GpuInventory:
    """The GPUs of this host."""

    gpus: tuple[Gpu, ...]
    reason: str
    """Reason why there are no more; empty if none is missing."""


def inventory() -> GpuInventory:
    """List every device of this host that is no CPU; changes nothing.

    Examples:
        >>> import kernel_matrix
        >>> isinstance(kernel_matrix.inventory().gpus, tuple)
        True
    """
    found = [one for name, one in host_inventory().items() if get_platform(name).IS_ACCELERATOR]
    gpus = tuple(gpu for one in found for gpu in one.gpus)
    # A host with GPUs of one vendor lacks none of another.
    reasons = (one.reason for one in found if one.reason and (one.gpus or not gpus))
    return GpuInventory(gpus, "; ".join(reasons))


def find_gpus(which: str | None = None) -> tuple[Gpu, ...]:
    """Return the GPU that ``which`` names by index, by UUID or by its beginning; all where it is ``None``.

    Raises:
        NothingSelectedError: This host has no GPU; the error says why.
        UsageError: No GPU has that name, or several have.
    """
    here = inventory()
    if not here.gpus:
        raise NothingSelectedError(f"this host has no GPU: {here.reason}", next_step="kernel-matrix doctor says more")
    return here.gpus if which is None else (named_gpu(which, here.gpus),)


def named_gpu(which: str, gpus: Sequence[Gpu]) -> Gpu:
    """Return the one of ``gpus`` that ``which`` names by index, by UUID or by its beginning.

    Raises:
        UsageError: None has that name, or several have.
    """
    found = [gpu for gpu in gpus if which == str(gpu.index) or gpu.uuid.startswith(which)]
    if len(found) != 1:
        known = ", ".join(f"{gpu.index} ({gpu.uuid})" for gpu in gpus)
        what = f"--gpu {which} names {'none' if not found else 'more than one'} of {known}"
        raise UsageError(what, next_step="give an index or a whole UUID")
    return found[0]


def describe_gpu(gpu: Gpu) -> dict[str, Any]:
    """Return all known values of a GPU now; ``error`` is not empty if it does not answer."""
    links = [asdict(link) for link in gpu.links]
    document = {**gpu_document(gpu), "links": links, "peak": asdict(peak_of(gpu)), "error": ""}
    platform = get_platform(gpu.platform)
    try:
        with platform.opened():
            details = platform.details(gpu)
            return document | {
                "now": platform.snapshot(gpu),
                "modes": asdict(platform.modes(gpu)),
                "processes": describe_processes(platform.processes(gpu)),
                "details": dict(details.values),
                "missing": dict(details.missing),
            }
    except InfrastructureError as error:
        return document | {"error": str(error)}


def describe_gpu_links(gpus: Sequence[Gpu]) -> list[str]:
    """Return a line about the links between the GPUs of each platform that has several, if they are known."""
    names = dict.fromkeys(gpu.platform for gpu in gpus)
    lines = (describe_links([gpu for gpu in gpus if gpu.platform == name]) for name in names)
    return [line for line in lines if line]


def describe_processes(pids: Sequence[int]) -> list[dict[str, Any]]:
    """Return each process with the name that the kernel has for its program."""
    return [{"pid": pid, "name": command(pid)} for pid in pids]


def watch_gpus(
    gpus: Sequence[Gpu], *, every_s: float = 0.5, count: int | None = None
) -> Generator[Mapping[Gpu, TelemetrySample], None, None]:
    """Yield a sample of each GPU at a time.

    Args:
        gpus: The GPUs.
        every_s: Seconds from one sample to the next; a time that has passed already is left out.
        count: Samples of each GPU; without end by default.

    Raises:
        GpuLostError: A GPU no longer answers.
        NothingSelectedError: A GPU has no telemetry.
    """
    with ExitStack() as stack:
        samplers = {gpu: stack.enter_context(_sampler(gpu)) for gpu in gpus}
        for _ in _ticks(every_s, count):
            yield {gpu: sample() for gpu, sample in samplers.items()}


@contextmanager
def _sampler(gpu: Gpu) -> Iterator[Callable[[], TelemetrySample]]:
    platform = get_platform(gpu.platform)
    with platform.opened():
        sampler = platform.sampler(gpu)
        if sampler is None:
            raise NothingSelectedError(f"there is nothing to watch on {gpu.name}")
        yield sampler


def _ticks(every_s: float, count: int | None) -> Iterator[int]:
    """Yield numbers, each at its time."""
    began = time.monotonic()
    for number in count_from() if count is None else range(count):
        yield number
        if count is None or number + 1 < count:
            elapsed = time.monotonic() - began
            time.sleep(every_s - elapsed % every_s)


def calibrate_gpus(
    gpus: Sequence[Gpu],
    matrix: Matrix | str | Path = "matrix.toml",
    *,
    toolchain: str | None = None,
    sandbox: str = AUTO,
    lock: str | Path | None = None,
    wait_s: float = 300.0,
) -> Iterator[dict[str, Any]]:
    """Measure how fast each GPU moves bytes and multiplies, and keep that on this host as its peak.

    Args:
        gpus: The GPUs; one after the other is held alone and measured.
        matrix: The matrix whose toolchains to choose from, or its file.
        toolchain: The toolchain to measure with; by default the newest that can.
        sandbox: ``auto``, ``docker``, ``unpacked`` or ``process``.
        lock: The images lock; the matrix's own by default.
        wait_s: How long to wait for a GPU in use.

    Returns:
        A document per GPU, as each is measured.

    Raises:
        UsageError: The matrix has no such toolchain.
        NothingSelectedError: No toolchain here can run on one of the GPUs.
        InfrastructureError: A GPU could not be measured, or was not held alone.
    """
    loaded = matrix if isinstance(matrix, Matrix) else load_matrix(Path(matrix))
    host = survey(loaded, sandbox=sandbox, lock_path=Path(lock) if lock else None)
    wanted = _wanted(loaded, toolchain, host)
    toolchains = {gpu: _newest_usable(gpu, wanted, host) for gpu in gpus}
    for gpu, usable in toolchains.items():
        yield _measured(gpu, usable, host, wait_s)


def _wanted(matrix: Matrix, name: str | None, found: HostSurvey) -> list[Toolchain]:
    """Return the toolchains for GPUs to choose from: all of ``matrix``, or the one of that name.

    Raises:
        UsageError: The matrix has none of that name.
    """
    known_here = [found.inventory.environments.get(toolchain.name, toolchain) for toolchain in matrix.toolchains]
    accelerators = [name for name, platform in platforms().items() if platform.IS_ACCELERATOR]
    for_gpus = [toolchain for toolchain in known_here if toolchain.platform in ("", *accelerators)]
    wanted = [toolchain for toolchain in for_gpus if name in (None, toolchain.name)]
    if not wanted:
        known = ", ".join(toolchain.name for toolchain in for_gpus)
        what = f"{matrix.path} has no toolchain for GPUs {name or ''}".rstrip()
        raise UsageError(what, next_step=f"it has: {known}")
    return wanted


def _newest_usable(gpu: Gpu, wanted: Sequence[Toolchain], found: HostSurvey) -> Toolchain:
    """Return the newest of ``wanted`` that is here and runs on ``gpu``.

    Raises:
        NothingSelectedError: None can run; the message gives the reason for each.
    """
    reasons = {toolchain: _skip_reason(gpu, toolchain, found) for toolchain in wanted}
    usable = [toolchain for toolchain, reason in reasons.items() if not reason]
    if not usable:
        why = "".join(f"\n  {toolchain.name}: {reason}" for toolchain, reason in reasons.items())
        raise NothingSelectedError(f"no toolchain here can run on GPU {gpu.index} ({gpu.name}):{why}")
    return max(usable, key=lambda toolchain: parse_version(toolchain.versions.get(toolchain.platform)) or ())


def _skip_reason(gpu: Gpu, toolchain: Toolchain, found: HostSurvey) -> str:
    """Return the reason why ``toolchain`` cannot measure ``gpu`` here; empty if it can."""
    if toolchain.platform not in ("", gpu.platform):
        return f"it is for {get_platform(toolchain.platform).TITLE}s"
    if (found.sandbox.uses_images or toolchain.environment) and toolchain.name not in found.images:
        images_only = f"sandbox {found.sandbox.name} runs images only: choose --sandbox process"
        return found.inventory.images.get(toolchain.name, images_only)
    platform, versions = get_platform(gpu.platform), toolchain.versions
    reason = platform.driver_skip_reason(versions, gpu)
    return reason or platform.code_skip_reason(versions, gpu.compute_capability, gpu.driver) or ""


def _measured(gpu: Gpu, toolchain: Toolchain, found: HostSurvey, wait_s: float) -> dict[str, Any]:
    """Measure ``gpu``; return the rates and where they are kept."""
    document = ask_device(gpu, toolchain.name, found, question=CALIBRATE, wait_s=wait_s)
    try:
        kept = write_calibration(gpu, {**document, "toolchain": toolchain.name})
    except (OSError, ValueError) as error:
        what = f"the calibration of {gpu.uuid} cannot be kept: {error}"
        raise InfrastructureError(what, next_step=f"{STATE_DIR_VARIABLE} names another folder") from error
    return {**document, "uuid": gpu.uuid, "name": gpu.name, "toolchain": toolchain.name, "kept": str(kept)}


def ask_device(gpu: Gpu, toolchain: str, found: HostSurvey, *, question: str, wait_s: float) -> Mapping[str, Any]:
    """Hold ``gpu`` alone, and return what a probe with a toolchain answers to ``question``.

    Raises:
        GpuBusyError: The GPU was not free in time, or another process used it meanwhile.
        InfrastructureError: Nothing could be measured.
    """
    run_id, owner = new_run_id(), owner_token()
    with scratch_folder() as scratch:
        context = RunContext(
            run_id=run_id, sandbox=found.sandbox, sandbox_status=found.status, owner=owner, scratch=scratch
        )
        terms = LeaseTerms(wait_s=wait_s, owner=owner, run_id=run_id, cell_id="calibration")
        return measure_device(gpu, found.images.get(toolchain), context, terms, question=question)
