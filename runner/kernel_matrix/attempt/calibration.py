"""Measuring one device, with a trusted process that has it to itself."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernel_matrix.attempt.assignment import RunContext
from kernel_matrix.attempt.folders import judge_uid
from kernel_matrix.attempt.probe_process import asked, last_words
from kernel_matrix.attempt.sessions import admit
from kernel_matrix.errors import GpuBusyError, SandboxError
from kernel_matrix.images import ResolvedImage
from kernel_matrix.lease import Lease, LeaseTerms, hold
from kernel_matrix.model.enums import Role
from kernel_matrix.platforms import Gpu
from kernel_matrix.platforms.registry import get_platform
from kernel_matrix.sandboxes import Mount, ProcessExit, ProcessLabels, RoleSpec
from kernel_matrix.untrusted_json import UntrustedJsonError, read_object

CALIBRATE = "calibrate"
CONFORMANCE = "conformance"

_LIMIT_S = 300.0


def measure_device(
    gpu: Gpu, image: ResolvedImage | None, context: RunContext, terms: LeaseTerms, *, question: str = CALIBRATE
) -> Mapping[str, Any]:
    """Return what :mod:`kernel_matrix.inside.probe` answers to ``question`` on ``gpu``.

    The image must have torch for this GPU; it is None for a sandbox without images.

    Raises:
        GpuBusyError: If the GPU was not free in time, or another process used it meanwhile.
        SandboxError: If nothing could be measured.
    """
    with hold(gpu, terms, reap=context.sandbox.sweep, cancelled=context.cancelled) as lease:
        document = _measured(lease, image, context, terms, question)
    if lease.foreign_pids:
        what = f"the measurement of {gpu.uuid} does not count: {lease.reason}"
        raise GpuBusyError(what, next_step="run it again when no other process is on the GPU")
    return document


def measuring_spec(gpu: Gpu, image: ResolvedImage | None, labels: ProcessLabels, out: Mount, question: str) -> RoleSpec:
    """Describe the measuring process: trusted, sees the GPU and the folder for its answer."""
    return RoleSpec(
        role=Role.PROBE,
        labels=labels,
        platform=gpu.inside,
        image=image.id if image is not None else None,
        environment=image.environment if image is not None else None,
        module="kernel_matrix.inside.probe",
        args=(question, "--out", out.target, "--device", gpu.inside),
        mounts=(out,),
        gpu=gpu if get_platform(gpu.platform).IS_ACCELERATOR else None,
        lends_memory=True,  # it proves that two processes can share the memory of arenas
        uid=judge_uid(),
    )


def _measured(
    lease: Lease, image: ResolvedImage | None, context: RunContext, terms: LeaseTerms, question: str
) -> Mapping[str, Any]:
    gpu = lease.gpu
    labels = ProcessLabels(
        run_id=context.run_id, cell_id=terms.cell_id, session=0, gpu_uuid=gpu.uuid, owner=context.owner
    )
    probe = asked(
        context.sandbox,
        lambda out: measuring_spec(gpu, image, labels, out, question),
        scratch=context.scratch,
        started=lambda running: admit(lease, running),
        called_off=context.cancelled,
        limit_s=_LIMIT_S,
    )
    with probe as (answer, ended):
        return _read(answer, ended)


def _read(path: Path, ended: ProcessExit | None) -> Mapping[str, Any]:
    try:
        return read_object(path)
    except UntrustedJsonError as error:
        what = f"the measurement left no answer: {_how_it_ended(ended)}"
        raise SandboxError(what, next_step="kernel-matrix doctor looks for the cause") from error


def _how_it_ended(ended: ProcessExit | None) -> str:
    if ended is None or ended.killed:
        return f"it did not end within {_LIMIT_S:.0f} s"
    if ended.lost:
        return "the sandbox lost sight of it"
    return f"it ended with code {ended.code}, signal {ended.signal}: {last_words(ended)}"
