"""What would be asked of the engine for a cell, without asking (``--dry-run``)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runner.cell.building import NEEDS_BUILD
from runner.cell.folders import CellFolders
from runner.cell.probing import shown
from runner.cell.specs import Place, builder_spec, candidate_spec, judge_spec, probe_spec
from runner.engines import Engine, Labels, Mount
from runner.gpus import Gpu
from runner.images import Resolved
from runner.plan import Cell

_SOMEWHERE = Path("/var/tmp/kernel-matrix-preview")  # noqa: S108  # nothing is made there: it stands for a new folder


def preview(cell: Cell, gpu: Gpu, engine: Engine, images: Mapping[str, Resolved]) -> dict[str, Any]:
    """The settings of every process of ``cell``, as the engine would pass them on."""
    labels = Labels(run_id="preview", cell_id=cell.id, session=0, gpu_uuid=gpu.uuid, owner="preview")
    place = Place(cell=cell, gpu=gpu, image=images.get(cell.toolchain.name), labels=labels)
    needs_build = cell.candidate.language in NEEDS_BUILD
    folders = CellFolders(root=_SOMEWHERE, has_artifact=needs_build)
    specs = [judge_spec(place, folders), candidate_spec(place, folders)]
    if needs_build:
        code = Mount(source=_SOMEWHERE / "code", target="/candidate")
        channel = Mount(source=_SOMEWHERE / "channel", target="/channel")
        specs.insert(0, builder_spec(place, code, channel))
    if place.visible_gpu is not None and cell.policy.health_probe:
        specs.append(probe_spec(place, shown(_SOMEWHERE / "out")))
    return {
        "cell_id": cell.id,
        "candidate": cell.candidate.id,
        "dtype": cell.dtype.value,
        "gpu": gpu.uuid,
        "processes": {spec.role.value: engine.describe(spec) for spec in specs},
    }
