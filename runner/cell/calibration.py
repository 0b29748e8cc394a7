"""How fast one GPU is: measured by a process of ours while nobody else is on it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runner.cell.assignment import Bench
from runner.cell.folders import judge_uid
from runner.cell.probing import asked, last_words
from runner.cell.sessions import admit
from runner.core.vocab import Role
from runner.engines import Exit, Labels, Mount, RoleSpec
from runner.errors import EngineError, GpuBusyError
from runner.gpus import Gpu
from runner.images import Resolved
from runner.lease import Lease, Terms, hold
from runner.results.reading import RefusedError, parse, read_bytes

_LIMIT_S = 300.0


def calibrate(gpu: Gpu, image: Resolved | None, bench: Bench, terms: Terms) -> Mapping[str, Any]:
    """What :mod:`runner.core.probe` measured on ``gpu``.

    :param image: with torch for this GPU; null for an engine without images.
    :raises GpuBusyError: when it was not free in time, or somebody else came onto it meanwhile.
    :raises EngineError: when nothing could be measured.
    """
    with hold(gpu, terms, reap=bench.engine.sweep, cancelled=bench.cancelled) as lease:
        document = _measured(lease, image, bench, terms)
    if lease.foreign_pids:
        what = f"the calibration of {gpu.uuid} does not count: {lease.reason}"
        raise GpuBusyError(what, next_step="run it again when nobody else is on the GPU")
    return document


def calibration_spec(gpu: Gpu, image: Resolved | None, labels: Labels, out: Mount) -> RoleSpec:
    """The probe that measures: trusted, sees the GPU and the folder for its answer."""
    return RoleSpec(
        role=Role.PROBE,
        labels=labels,
        image=image.id if image is not None else None,
        module="runner.core.probe",
        args=("calibrate", "--out", out.target, "--device", gpu.torch_device),
        mounts=(out,),
        gpu=None if gpu.vendor == "cpu" else gpu,
        uid=judge_uid(),
    )


def _measured(lease: Lease, image: Resolved | None, bench: Bench, terms: Terms) -> Mapping[str, Any]:
    gpu = lease.gpu
    labels = Labels(run_id=bench.run_id, cell_id=terms.cell_id, session=0, gpu_uuid=gpu.uuid, owner=bench.owner)
    probe = asked(
        bench.engine,
        lambda out: calibration_spec(gpu, image, labels, out),
        scratch=bench.scratch,
        started=lambda running: admit(lease, running),
        called_off=bench.cancelled,
        limit_s=_LIMIT_S,
    )
    with probe as (answer, ended):
        return _read(answer, ended)


def _read(path: Path, ended: Exit | None) -> Mapping[str, Any]:
    try:
        return parse(read_bytes(path))
    except RefusedError as error:
        what = f"the calibration left no answer: {_how_it_ended(ended)}"
        raise EngineError(what, next_step="kernel-matrix doctor looks for the cause") from error


def _how_it_ended(ended: Exit | None) -> str:
    if ended is None or ended.killed:
        return f"it did not end within {_LIMIT_S:.0f} s"
    if ended.lost:
        return "the engine lost sight of it"
    return f"it ended with code {ended.code}, signal {ended.signal}: {last_words(ended)}"
