"""What ``kernel-matrix gpus calibrate`` does: one GPU after the other, each held alone, measured in a container."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernel_matrix.attempt.assignment import RunContext
from kernel_matrix.attempt.calibration import calibrate
from kernel_matrix.attempt.scratch import scratch_folder
from kernel_matrix.cli.output import console, print_json
from kernel_matrix.cli.run_request import new_run_id
from kernel_matrix.compatibility import compatibility, parse_version
from kernel_matrix.errors import InfrastructureError, NothingSelectedError, UsageError
from kernel_matrix.hosts.process_token import owner_token
from kernel_matrix.hosts.survey import HostSurvey, survey
from kernel_matrix.lease.terms import LeaseTerms
from kernel_matrix.matrix import Matrix, Toolchain
from kernel_matrix.matrix.load import load_matrix
from kernel_matrix.platforms import Gpu
from kernel_matrix.platforms.peaks import STATE_DIR_VARIABLE, write_calibration


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrateOptions:
    """The options of ``gpus calibrate``."""

    matrix: Path
    toolchain: str | None
    engine: str
    lock: Path | None
    wait_s: float
    json: bool


def calibrate_gpus(gpus: Sequence[Gpu], request: CalibrateOptions) -> None:
    """Measure each of ``gpus``, keep what was measured, and print it.

    :raises UsageError: when the matrix has no such toolchain.
    :raises NothingSelectedError: when no toolchain here can run on one of them.
    :raises InfrastructureError: when one could not be measured, or somebody else was on it meanwhile.
    """
    matrix = load_matrix(request.matrix)
    wanted = _wanted(matrix, request.toolchain)
    found = survey(matrix, engine=request.engine, lock_path=request.lock)
    toolchains = {gpu: _newest_usable(gpu, wanted, found) for gpu in gpus}
    documents = []
    for gpu, toolchain in toolchains.items():
        document = _measured(gpu, toolchain, found, request.wait_s)
        documents.append(document)
        if not request.json:
            _print(gpu, toolchain, document)
    if request.json:
        print_json(documents)


def _wanted(matrix: Matrix, name: str | None) -> list[Toolchain]:
    """The CUDA toolchains to choose from: all of ``matrix``, or the one of that name.

    :raises UsageError: when the matrix has none of that name.
    """
    wanted = [t for t in matrix.toolchains if name in (None, t.name) and t.cuda is not None]
    if not wanted:
        known = ", ".join(t.name for t in matrix.toolchains if t.cuda is not None)
        raise UsageError(f"{matrix.path} has no CUDA toolchain {name or ''}".rstrip(), next_step=f"it has: {known}")
    return wanted


def _newest_usable(gpu: Gpu, wanted: Sequence[Toolchain], found: HostSurvey) -> Toolchain:
    """The newest of ``wanted`` that is here and runs on ``gpu``.

    :raises NothingSelectedError: when none can run, with the reason of each.
    """
    obstacles = {toolchain: _obstacle(gpu, toolchain, found) for toolchain in wanted}
    usable = [toolchain for toolchain, obstacle in obstacles.items() if not obstacle]
    if not usable:
        why = "".join(f"\n  {toolchain.name}: {obstacle}" for toolchain, obstacle in obstacles.items())
        raise NothingSelectedError(f"no toolchain here can run on GPU {gpu.index} ({gpu.name}):{why}")
    return max(usable, key=lambda toolchain: parse_version(toolchain.cuda) or ())


def _obstacle(gpu: Gpu, toolchain: Toolchain, found: HostSurvey) -> str:
    """Why ``toolchain`` cannot measure ``gpu`` here, in words; empty: it can."""
    cuda = toolchain.cuda or ""
    if found.engine.uses_images and toolchain.name not in found.images:
        return found.facts.images[toolchain.name]
    table = compatibility()
    obstacle = table.driver_obstacle(cuda=cuda, driver=gpu.driver, cuda_driver=gpu.cuda_driver)
    return obstacle or (
        table.code_obstacle(
            cuda=cuda, torch=toolchain.torch, compute_capability=gpu.compute_capability, driver=gpu.driver
        )
        or ""
    )


def _measured(gpu: Gpu, toolchain: Toolchain, found: HostSurvey, wait_s: float) -> dict[str, Any]:
    """What was measured on ``gpu``, and where it is kept."""
    run_id, owner = new_run_id(), owner_token()
    with scratch_folder() as scratch:
        bench = RunContext(run_id=run_id, engine=found.engine, engine_status=found.status, owner=owner, scratch=scratch)
        terms = LeaseTerms(wait_s=wait_s, owner=owner, run_id=run_id, cell_id="calibration")
        document = calibrate(gpu, found.images.get(toolchain.name), bench, terms)
    try:
        kept = write_calibration(gpu, {**document, "toolchain": toolchain.name})
    except (OSError, ValueError) as error:
        what = f"the calibration of {gpu.uuid} cannot be kept: {error}"
        raise InfrastructureError(what, next_step=f"{STATE_DIR_VARIABLE} names another folder") from error
    return {**document, "uuid": gpu.uuid, "name": gpu.name, "toolchain": toolchain.name, "kept": str(kept)}


def _print(gpu: Gpu, toolchain: Toolchain, document: dict[str, Any]) -> None:
    screen = console()
    screen.print(f"GPU {gpu.index} ({gpu.name}), measured with {toolchain.name}:", markup=False)
    screen.print(f"  memory  {document['bytes_per_s'] / 1e9:8.4g} GB/s")
    for dtype, rate in document["flops_per_s"].items():
        screen.print(f"  {dtype:<6}  {rate / 1e12:8.4g} TFLOP/s")
    screen.print(f"  kept in {document['kept']}", markup=False)
