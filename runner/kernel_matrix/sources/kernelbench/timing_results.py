"""Import KernelBench's baseline times: ``{level: {problem file: statistics}}``, a file per baseline and machine.

The statistics are mean, std, min and max over ``num_trials`` in milliseconds with at most three digits. A problem that
could not be timed is null, without a reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import Any, Final

from kernel_matrix.model.enums import Language, Status
from kernel_matrix.sources.json_files import JsonFile, JsonNode
from kernel_matrix.sources.kernelbench.reader import LEVEL_FOLDER
from kernel_matrix.sources.measurement import (
    EAGER,
    MEAN,
    NS_PER_MS,
    ImportedFile,
    ImportedMeasurement,
    ImportFormat,
    with_baseline,
)
from kernel_matrix.untrusted_json import escape_surrogates

_VERSION = re.compile(r"v\d+(\.\d+)*\Z")
_PREFIX: Final = "baseline_time_"

_DISTINCT_PROBLEMS: Final[Mapping[str, frozenset[str]]] = {
    "v0": frozenset(
        {"level1/97_CosineSimilarityLoss", "level2/27_Conv3d_HardSwish_ReLU_Softmax_Mean", "level3/36_LTSMHn"}
    ),
    "v0.1": frozenset(
        {"level1/97_ScaledDotProductAttention", "level2/27_Conv3d_HardSwish_GroupNorm_Mean", "level3/36_LSTMHn"}
    ),
}
"""Version → problems that only it has; shapes differ between versions, so their times must not be compared."""


def read(file: JsonFile) -> list[ImportedMeasurement]:
    """Read every problem of every level; see :class:`ImportFormat`."""
    candidate = escape_surrogates(file.path.stem).removeprefix(_PREFIX)
    document = file.document()
    found = list(file.each(_entries(document), lambda node: _make_measurement(node, file.folder, candidate)))
    nulls = sum(one.status is not Status.PASSED for one in found)
    if nulls:
        file.notes.append(f"{nulls} problems have neither a time nor a reason: {Status.INFRA_ERROR.value}")
    return found


def _entries(document: JsonNode) -> Iterator[JsonNode]:
    for _level, problems in document.members():
        if not isinstance(problems.value, dict):
            yield problems  # refused later, so that the other levels are still read
            continue
        for _name, entry in problems.members():
            yield entry


def _make_measurement(node: JsonNode, machine: str, candidate: str) -> ImportedMeasurement:
    level, name = map(str, (node.keys[0], node.keys[-1]))
    number = LEVEL_FOLDER.match(level)
    if number is None:
        raise node.fault(f"{level!r} is not a level: level1, level2, …")
    if len(node.keys) == 1:
        raise node.fault("must be an object of problems")
    seen = ImportedMeasurement(
        problem=f"{level}/{PurePath(name).stem}",
        candidate=candidate,
        gpu=None,
        host={"hostname": machine},
        columns={"level": int(number[1]), "language": Language.TORCH.value},
    )
    if node.value is None:
        message = "the file has neither a time nor a reason, so the cause is unknown"
        return replace(seen, status=Status.INFRA_ERROR, message=message)
    columns, hardware = statistics(node), node.get("hardware")
    return replace(
        seen,
        columns={**seen.columns, **columns},
        host={**seen.host, "gpu_name": hardware and hardware.text()},
        labels=(MEAN,),
    )


def statistics(node: JsonNode) -> dict[str, Any]:
    """Convert KernelBench's statistics (mean and std in milliseconds, number of trials) to columns."""
    mean, std, trials = node["mean"].amount(NS_PER_MS), node.get("std"), node.get("num_trials")
    return {
        "candidate_median_ns": mean,
        "candidate_samples": trials and trials.count(),
        "spread_within": std.amount(NS_PER_MS) / mean if std is not None and mean else None,
    }


def version(file: JsonFile) -> str:
    """Detect the version, ``v0`` or ``v0.1``, from problem names or else from the folder around the machine's.

    The versions share most names, but nearly all shapes differ.
    """
    document = file.first()
    names = {
        f"{level}/{PurePath(name).stem}"
        for level, problems in (document.items() if isinstance(document, dict) else ())
        for name in (problems if isinstance(problems, dict) else ())
    }
    known = [version for version, only in _DISTINCT_PROBLEMS.items() if only & names]
    if len(known) == 1:
        return known[0]
    around = file.place.parent.name
    return around if _VERSION.match(around) else ""


def join(own: Sequence[ImportedFile], _every: Sequence[ImportedFile]) -> tuple[ImportedFile, ...]:
    """Add the time of eager PyTorch on the same machine and hardware as baseline of each time."""
    eager = {_pair_key(file, one): one.columns for file, one in eager_times(own)}
    return tuple(_join_file(file, eager) for file in own)


def eager_times(files: Iterable[ImportedFile]) -> Iterator[tuple[ImportedFile, ImportedMeasurement]]:
    """Yield the times of eager PyTorch in baseline tables, with their files."""
    for file in files:
        for one in file.measured if file.format == FORMAT.name else ():
            if one.candidate == EAGER and one.status is Status.PASSED:
                yield file, one


def _join_file(file: ImportedFile, eager: Mapping[tuple[str, ...], Mapping[str, Any]]) -> ImportedFile:
    measured = tuple(_add_baseline(one, eager.get(_pair_key(file, one))) for one in file.measured)
    timed = [one for one in measured if one.candidate != EAGER and one.status is Status.PASSED]
    alone = sum("baseline_median_ns" not in one.columns for one in timed)
    note = f"{alone} of {len(timed)} times have no baseline: no time of {EAGER} on the same hardware of this machine"
    return replace(file, measured=measured, notes=(*file.notes, note) if alone else file.notes)


def _pair_key(file: ImportedFile, one: ImportedMeasurement) -> tuple[str, ...]:
    return (str(file.place), file.version, one.problem, str(one.host.get("gpu_name")))


def _add_baseline(one: ImportedMeasurement, eager: Mapping[str, Any] | None) -> ImportedMeasurement:
    if eager is None or one.candidate == EAGER or one.status is not Status.PASSED:
        return one
    return with_baseline(one, eager)


FORMAT: Final = ImportFormat(
    name="kernelbench-timing",
    description="KernelBench's baseline tables, {level: {problem file: {mean, std, …}}}",
    knows=lambda value: isinstance(value, dict) and any(LEVEL_FOLDER.match(key) for key in value),
    read=read,
    version=version,
    folder_is_machine=True,
    join=join,
)
