"""Preview of the processes of a cell (``--dry-run``); starts nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from kernel_matrix.attempt.candidate_build import is_built
from kernel_matrix.attempt.contestants import CANDIDATE, contestants_of
from kernel_matrix.attempt.folders import SessionFolders
from kernel_matrix.attempt.prepared_session import spec_of
from kernel_matrix.attempt.probe_process import shown
from kernel_matrix.attempt.role_specs import CellPlacement, builder_spec, judge_spec, probe_spec
from kernel_matrix.attempt.sanitizing import tools_for
from kernel_matrix.attempt.source_findings import is_rejected
from kernel_matrix.images import ResolvedImage
from kernel_matrix.model.enums import Role
from kernel_matrix.plan import Cell
from kernel_matrix.platforms import Gpu
from kernel_matrix.sandboxes import Mount, ProcessLabels, RoleSpec, Sandbox

_SOMEWHERE = Path("/var/tmp/kernel-matrix-preview")  # noqa: S108  # nothing is made there: it stands for a new folder


def preview(cell: Cell, gpu: Gpu, sandbox: Sandbox, images: Mapping[str, ResolvedImage]) -> dict[str, Any]:
    """Return the settings of every process of ``cell``, as the sandbox would use them.

    Only the first session is shown, since the others differ in their number alone.
    """
    labels = ProcessLabels(run_id="preview", cell_id=cell.id, session=0, gpu_uuid=gpu.uuid, owner="preview")
    place = CellPlacement(cell=cell, gpu=gpu, image=images.get(cell.toolchain.name), labels=labels)
    return {
        "cell_id": cell.id,
        "candidate": cell.candidate.id,
        "dtype": cell.dtype.value,
        "gpu": gpu.uuid,
        "processes": {title: sandbox.describe(spec) for title, spec in _processes(place)},
    }


def _processes(place: CellPlacement) -> Iterator[tuple[str, RoleSpec]]:
    """Yield the processes in the order of their start; none for a candidate that the policy rejects."""
    cell = place.cell
    if is_rejected(cell):
        return
    if is_built(cell, place.gpu):
        yield Role.BUILDER.value, _builder(place)
    if not cell.compile_only:
        yield from _session(place)
        # Runs only if the judges' own health checks leave a doubt.
        if place.visible_gpu is not None and cell.policy.health_probe:
            yield Role.PROBE.value, probe_spec(place, shown(_SOMEWHERE / "out"))


def _builder(place: CellPlacement) -> RoleSpec:
    code = Mount(source=_SOMEWHERE / "code", target="/candidate")
    channel = Mount(source=_SOMEWHERE / "channel", target="/channel")
    labels = replace(place.labels, gpu_uuid="")
    built = replace(place, labels=labels, beside_sessions=place.platform.IS_ACCELERATOR)
    return builder_spec(built, code, channel)


def _session(place: CellPlacement) -> Iterator[tuple[str, RoleSpec]]:
    folders = SessionFolders(root=_SOMEWHERE, has_artifact=is_built(place.cell, place.gpu))
    contestants = {contestant.name: contestant for contestant in contestants_of(place.cell)}
    yield Role.JUDGE.value, judge_spec(place, folders)
    for name, contestant in contestants.items():
        yield name, spec_of(place, folders, contestant)
    for tool in tools_for(place.cell, place.gpu):
        yield f"{CANDIDATE} under {tool}", spec_of(replace(place, sanitizer=tool), folders, contestants[CANDIDATE])
