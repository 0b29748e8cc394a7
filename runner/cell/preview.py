"""What would be asked of the engine for a cell, without asking (``--dry-run``)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runner.cell.compiling import is_built
from runner.cell.contestants import contestants_of
from runner.cell.folders import SessionFolders
from runner.cell.prepared import spec_of
from runner.cell.probing import shown
from runner.cell.specs import Place, builder_spec, judge_spec, probe_spec
from runner.engines import Engine, Labels, Mount
from runner.gpus import Gpu
from runner.images import Resolved
from runner.plan import Cell

_SOMEWHERE = Path("/var/tmp/kernel-matrix-preview")  # noqa: S108  # nothing is made there: it stands for a new folder


def preview(cell: Cell, gpu: Gpu, engine: Engine, images: Mapping[str, Resolved]) -> dict[str, Any]:
    """The settings of every process of ``cell``, as the engine would pass them on."""
    labels = Labels(run_id="preview", cell_id=cell.id, session=0, gpu_uuid=gpu.uuid, owner="preview")
    place = Place(cell=cell, gpu=gpu, image=images.get(cell.toolchain.name), labels=labels)
    needs_build = is_built(cell, gpu)
    folders = SessionFolders(root=_SOMEWHERE, has_artifact=needs_build)
    runs = [judge_spec(place, folders), *(spec_of(place, folders, one) for one in contestants_of(cell))]
    specs = [] if cell.compile_only else runs
    if needs_build or cell.compile_only:
        code = Mount(source=_SOMEWHERE / "code", target="/candidate")
        channel = Mount(source=_SOMEWHERE / "channel", target="/channel")
        specs.insert(0, builder_spec(place, code, channel))
    if place.visible_gpu is not None and cell.policy.health_probe and not cell.compile_only:
        specs.append(probe_spec(place, shown(_SOMEWHERE / "out")))
    return {
        "cell_id": cell.id,
        "candidate": cell.candidate.id,
        "dtype": cell.dtype.value,
        "gpu": gpu.uuid,
        "processes": {spec.title: engine.describe(spec) for spec in specs},
    }
