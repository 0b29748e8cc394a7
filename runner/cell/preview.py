"""What would be asked of the engine for a cell, without asking (``--dry-run``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from runner.cell.compiling import is_built
from runner.cell.contestants import CANDIDATE, contestants_of
from runner.cell.findings import is_rejected
from runner.cell.folders import SessionFolders
from runner.cell.prepared import spec_of
from runner.cell.probing import shown
from runner.cell.sanitizing import tools_for
from runner.cell.specs import Place, builder_spec, judge_spec, probe_spec
from runner.core.vocab import Role
from runner.engines import Engine, Labels, Mount, RoleSpec
from runner.gpus import Gpu
from runner.images import Resolved
from runner.plan import Cell

_SOMEWHERE = Path("/var/tmp/kernel-matrix-preview")  # noqa: S108  # nothing is made there: it stands for a new folder


def preview(cell: Cell, gpu: Gpu, engine: Engine, images: Mapping[str, Resolved]) -> dict[str, Any]:
    """The settings of every process of ``cell``, as the engine would pass them on.

    Of several sessions the first is shown: the others differ in their number alone.
    """
    labels = Labels(run_id="preview", cell_id=cell.id, session=0, gpu_uuid=gpu.uuid, owner="preview")
    place = Place(cell=cell, gpu=gpu, image=images.get(cell.toolchain.name), labels=labels)
    return {
        "cell_id": cell.id,
        "candidate": cell.candidate.id,
        "dtype": cell.dtype.value,
        "gpu": gpu.uuid,
        "processes": {title: engine.describe(spec) for title, spec in _processes(place)},
    }


def _processes(place: Place) -> Iterator[tuple[str, RoleSpec]]:
    """What is started, in that order; nothing for a candidate that the policy rejects."""
    cell = place.cell
    if is_rejected(cell):
        return
    if is_built(cell, place.gpu):
        yield Role.BUILDER.value, _builder(place)
    if not cell.compile_only:
        yield from _session(place)
        # Only where the judges' own questions to the GPU leave a doubt.
        if place.visible_gpu is not None and cell.policy.health_probe:
            yield Role.PROBE.value, probe_spec(place, shown(_SOMEWHERE / "out"))


def _builder(place: Place) -> RoleSpec:
    code = Mount(source=_SOMEWHERE / "code", target="/candidate")
    channel = Mount(source=_SOMEWHERE / "channel", target="/channel")
    return builder_spec(replace(place, labels=replace(place.labels, gpu_uuid="")), code, channel)


def _session(place: Place) -> Iterator[tuple[str, RoleSpec]]:
    folders = SessionFolders(root=_SOMEWHERE, has_artifact=is_built(place.cell, place.gpu))
    contestants = {contestant.name: contestant for contestant in contestants_of(place.cell)}
    yield Role.JUDGE.value, judge_spec(place, folders)
    for name, contestant in contestants.items():
        yield name, spec_of(place, folders, contestant)
    for tool in tools_for(place.cell, place.gpu):
        yield f"{CANDIDATE} under {tool}", spec_of(replace(place, sanitizer=tool), folders, contestants[CANDIDATE])
