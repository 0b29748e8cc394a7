"""Import KernelBench's results of samples: ``runs/<run>/eval_results.json``, or one result per file.

The former is ``{problem number: [result, …]}``; older files have one result or ``{sample: result}`` per problem. A
result is ``{sample_id, compiled, correctness, metadata, runtime, runtime_stats}`` with times in milliseconds, or -1 if
not timed. The level is not in the file; it is taken from kernels beside the file or from the name of the folder.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from kernel_matrix.model.enums import Status
from kernel_matrix.sources.json_files import JsonFile, JsonNode
from kernel_matrix.sources.kernelbench.timing_results import eager_times, statistics
from kernel_matrix.sources.measurement import (
    LONGEST_MESSAGE,
    MEAN,
    NS_PER_MS,
    ImportedFile,
    ImportedMeasurement,
    ImportFormat,
    with_baseline,
)

RESULT: Final = frozenset({"compiled", "correctness"})
"""Keys that every result has."""
_NAMED = re.compile(r"level_(\d+)_problem_(\d+)_sample_(\d+)")
_LEVEL = re.compile(r"level[_-]?(\d+)")
_TRIALS = re.compile(r"\(\s*(\d{1,9})\s*/\s*(\d{1,9})\s*\)\Z")
# fmt: off
_ERRORS: Final = (
    "compilation_error", "runtime_error", "cuda_error", "correctness_issue", "gpu_error", "other_error",
    "error", "error_message", "error_during_performance",
)
# fmt: on
"""Keys of ``metadata`` with an error message, the most specific first."""

_Result = tuple[JsonNode, str, int]
"""Result, number of its problem, and number of its sample if the result has none."""


def knows(value: Any) -> bool:
    """Return True for a document in this format; see :class:`ImportFormat`."""
    if not isinstance(value, dict):
        return False
    return _is_result(value) or any(key.isdecimal() and _holds_result(inner) for key, inner in value.items())


def _is_result(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() >= RESULT


def _holds_result(value: Any) -> bool:
    inner = value if isinstance(value, list) else value.values() if isinstance(value, dict) else ()
    return _is_result(value) or any(map(_is_result, inner))


def read(file: JsonFile) -> list[ImportedMeasurement]:
    """Read every sample of every problem; see :class:`ImportFormat`."""
    document = file.document()
    named = _NAMED.search(file.path.name)
    level = named[1] if named else _find_level(file)
    if level is None:
        file.notes.append("neither the file nor its folder names the level of the problems")
    run = file.folder
    if _is_result(document.value):
        number, sample = (named[2], int(named[3])) if named else ("", 0)
        results: Iterable[_Result] = [(document, number, sample)]
    else:
        results = _find_results(document)
    return list(file.each(results, lambda one: make_measurement(one, run, level)))


def _find_results(document: JsonNode) -> Iterator[_Result]:
    for number, node in document.members():
        if isinstance(node.value, list):
            for position, one in enumerate(node.elements()):
                yield one, number, position
        elif isinstance(node.value, dict) and not _is_result(node.value):
            for sample, one in node.members():
                yield one, number, int(sample) if sample.isdecimal() else 0
        else:
            yield node, number, 0


def _find_level(file: JsonFile) -> str | None:
    """Return the level of the kernels beside the file, or that in the name of its folder."""
    beside = {match[1] for path in file.path.parent.glob("level_*") if (match := _NAMED.match(path.name))}
    if len(beside) == 1:
        return beside.pop()
    match = _LEVEL.search(file.folder)
    return match[1] if match and not beside else None


def make_measurement(result: _Result, run: str, level: str | None) -> ImportedMeasurement:
    """Read one result.

    Args:
        result: The result, with the numbers of its problem and sample.
        run: Name of the run it belongs to.
        level: Level of the problem, if known.
    """
    node, number, place = result
    if not number.isdecimal():
        raise node.fault("does not name its problem; rename the file to level_<l>_problem_<p>_sample_<s>….json")
    given, metadata = node.get("sample_id"), node.get("metadata")
    sample = place if given is None else given.count()
    status, columns = _read_status(node, metadata), _read_columns(node)
    timed = status is Status.PASSED and "candidate_median_ns" in columns
    known = metadata.get("hardware") if metadata else None
    hardware = known.text() if known else None
    return ImportedMeasurement(
        problem=f"level{level}/{number}" if level else f"problem{number}",
        candidate=f"{run}-{sample}",
        gpu=hardware,
        host={"gpu_name": hardware},
        status=status,
        message=None if status is Status.PASSED else _read_message(metadata),
        columns={
            "level": int(level) if level else None,
            "origin_method": run,
            "origin_sample": sample,
            **_read_trials(metadata),
            **(columns if timed else {}),
        },
        labels=(MEAN,) if timed else (),
        warnings=_read_warnings(metadata),
    )


def _read_status(node: JsonNode, metadata: JsonNode | None) -> Status:
    if not node["compiled"].truth():
        return Status.COMPILE_ERROR
    if node["correctness"].truth():
        return Status.PASSED
    return Status.RUNTIME_ERROR if metadata and metadata.get("runtime_error") else Status.INCORRECT_VALUES


def _read_columns(node: JsonNode) -> dict[str, Any]:
    """Return the columns of times; none if ``runtime`` is -1, which means not timed."""
    columns: dict[str, Any] = {}
    mean, stats = _time_ns(node.get("runtime")), node.get("runtime_stats")
    if mean is not None:
        columns = statistics(stats) if stats is not None and stats.value else {}
        columns["candidate_median_ns"] = mean
    baseline = _time_ns(node.get("ref_runtime"))
    return columns if baseline is None else {**columns, "baseline_median_ns": baseline}


def _time_ns(node: JsonNode | None) -> float | None:
    return None if node is None or node.value == -1 else node.amount(NS_PER_MS)


def _read_trials(metadata: JsonNode | None) -> dict[str, int]:
    """Read the numbers of correctness trials from the form ``(4 / 5)``."""
    trials = metadata.get("correctness_trials") if metadata else None
    match = _TRIALS.match(trials.value) if trials is not None and isinstance(trials.value, str) else None
    return {"trials_passed": int(match[1]), "trials": int(match[2])} if match else {}


def _read_message(metadata: JsonNode | None) -> str | None:
    for key in _ERRORS:
        message = metadata.get(key) if metadata else None
        if message is not None:
            text = message.text() if isinstance(message.value, str) else str(message.value)
            return f"{key}: {text}"[:LONGEST_MESSAGE]
    return None


def _read_warnings(metadata: JsonNode | None) -> tuple[str, ...]:
    excessive = metadata.get("excessive_speedup") if metadata else None
    return ("KernelBench marked its speed-up as excessive",) if excessive is not None and excessive.value else ()


_Eager = Mapping[tuple[str, str, str], Sequence[Mapping[str, Any]]]
"""``gpu_name`` or ``gpu``, its value and the problem → columns of times of eager PyTorch."""


def join(own: Sequence[ImportedFile], every: Sequence[ImportedFile]) -> tuple[ImportedFile, ...]:
    """Add the time of eager PyTorch from baseline tables of the same import, of the same problem and hardware."""
    eager: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for _file, one in eager_times(every):
        for name, gpu in (("gpu_name", one.host.get("gpu_name")), ("gpu", one.gpu)):
            if gpu is not None:
                eager.setdefault((name, gpu, one.problem), []).append(one.columns)
    return tuple(_join_file(file, eager) for file in own) if eager else tuple(own)


def _join_file(file: ImportedFile, eager: _Eager) -> ImportedFile:
    measured = []
    absent = ambiguous = 0
    for one in file.measured:
        found = _find_eager(one, eager) if _lacks_baseline(one) else []
        absent += _lacks_baseline(one) and not found
        ambiguous += len(found) > 1
        measured.append(with_baseline(one, found[0]) if len(found) == 1 else one)
    notes = [*file.notes]
    if absent:
        notes.append(f"{absent} times have no baseline: no baseline table has the problem on the same hardware")
    if ambiguous:
        notes.append(f"{ambiguous} times have no baseline: several baseline tables differ; import one of them only")
    return replace(file, measured=tuple(measured), notes=tuple(notes))


def _lacks_baseline(one: ImportedMeasurement) -> bool:
    return "candidate_median_ns" in one.columns and "baseline_median_ns" not in one.columns


def _find_eager(one: ImportedMeasurement, eager: _Eager) -> list[Mapping[str, Any]]:
    """Return the different times of eager PyTorch on the GPU of ``one``, by what the hardware said if that is known."""
    name, gpu = ("gpu_name", one.host["gpu_name"]) if one.host.get("gpu_name") else ("gpu", one.gpu or "")
    found = eager.get((name, gpu, one.problem), ())
    return list({columns["candidate_median_ns"]: columns for columns in found}.values())


FORMAT: Final = ImportFormat(
    name="kernelbench-eval",
    description="KernelBench's eval_results.json, or one per sample: {compiled, correctness, metadata, runtime, …}",
    knows=knows,
    read=read,
    join=join,
)
