"""Import pairs of results before and after a change: ``{"before": result, "after": result}``.

A file holds one pair, one per line, a list of pairs, or ``{problem: pair}``. Each side is a candidate of the problem,
named ``before`` or ``after``, and the time before is the baseline of the time after. A result is one of KernelBench
(``{compiled, correctness, runtime, …}``), one of KernelBench-X (``{call_ok, exe_ok, performance, …}``), or has a time
whose key ends in its unit (``{"mean_ms": 1.5}``); a plain number needs a ``unit`` in its pair.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any, Final

from kernel_matrix.model.enums import Status
from kernel_matrix.sources.json_files import JsonFile, JsonNode
from kernel_matrix.sources.kernelbench import eval_results
from kernel_matrix.sources.kernelbenchx import metric_results
from kernel_matrix.sources.measurement import MEAN, NS_PER_UNIT, ImportedMeasurement, ImportFormat, with_baseline
from kernel_matrix.untrusted_json import escape_surrogates

BEFORE, AFTER = "before", "after"
_SIDES: Final = (BEFORE, AFTER)
_NAMES: Final = ("problem", "task", "name", "kernel", "op")
"""Keys of a pair that name its problem, the most specific first."""
_TIME = re.compile(r"(?:(?:time|latency|runtime|duration|kernel|device|gpu|median|mean|avg)_)*(?P<unit>ns|us|ms|s)")
_CORRECT: Final = ("correct", "correctness", "passed")


def knows(value: Any) -> bool:
    """Return True for a document in this format; see :class:`ImportFormat`."""
    inner = value if isinstance(value, list) else value.values() if isinstance(value, dict) else ()
    return _is_pair(value) or any(map(_is_pair, inner))


def _is_pair(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() >= set(_SIDES)


@dataclass(frozen=True, slots=True)
class _Pair:
    """Two results of one problem."""

    node: JsonNode
    """What both are in."""
    sides: Mapping[str, JsonNode]
    name: str | None = None
    """Name of the problem, if ``node`` holds the pairs of several."""


def read(file: JsonFile) -> list[ImportedMeasurement]:
    """Read two measurements per pair; see :class:`ImportFormat`."""
    groups = list(file.each(_pairs(file), lambda pair: _read_pair(pair, file)))
    if groups:
        file.notes.append(f"{len(groups)} pairs: candidates {BEFORE} and {AFTER}; the former is the latter's baseline")
    return [one for group in groups for one in group]


def _pairs(file: JsonFile) -> Iterator[_Pair]:
    for document in file.documents():
        if isinstance(document.value, list):
            yield from map(_as_pair, document.elements())
        elif isinstance(document.value, dict) and not _is_pair(document.value):
            yield from (_as_pair(node) for _key, node in document.members())
        elif _is_pair(document.value) and all(_holds_results(document.value[side]) for side in _SIDES):
            yield from _pairs_of_problems(document)
        else:
            yield _as_pair(document)


def _as_pair(node: JsonNode) -> _Pair:
    return _Pair(node, {side: node[side] for side in _SIDES if node.get(side)} if _is_pair(node.value) else {})


def _holds_results(value: Any) -> bool:
    """Return True for an object of results by problem; the members of a result itself are mostly plain."""
    return isinstance(value, dict) and bool(value) and all(isinstance(inner, dict) for inner in value.values())


def _pairs_of_problems(document: JsonNode) -> Iterator[_Pair]:
    """Yield the pairs of ``{"before": {problem: result}, "after": {problem: result}}``."""
    sides = {side: dict(document[side].members()) for side in _SIDES}
    for name in dict.fromkeys(name for results in sides.values() for name in results):
        yield _Pair(document, {side: results[name] for side, results in sides.items() if name in results}, name)


def _read_pair(pair: _Pair, file: JsonFile) -> list[ImportedMeasurement]:
    if not pair.sides:
        raise pair.node.fault(f"is not a pair: an object with {BEFORE} and {AFTER}")
    problem, unit = _name_problem(pair, file), pair.node.get("unit")
    scale = None if unit is None else _scale_of(unit)
    before, after = (
        [replace(one, problem=problem, candidate=side) for one in _read_side(node, problem, side, scale, file)]
        if (node := pair.sides.get(side)) is not None
        else []
        for side in _SIDES
    )
    times = {one.workload: one.columns for one in before if _is_timed(one)}
    given = pair.node.get("gpu") or pair.node.get("hardware")
    gpu = given.text() if given else None
    return [replace(one, gpu=one.gpu or gpu) for one in (*before, *_with_baselines(after, times))]


def _with_baselines(
    after: Iterable[ImportedMeasurement], times: Mapping[str, Mapping[str, Any]]
) -> Iterator[ImportedMeasurement]:
    for one in after:
        lacks = one.columns.get("baseline_median_ns") is None
        yield with_baseline(one, times[one.workload]) if _is_timed(one) and lacks and one.workload in times else one


def _is_timed(one: ImportedMeasurement) -> bool:
    return one.status is Status.PASSED and one.columns.get("candidate_median_ns") is not None


def _name_problem(pair: _Pair, file: JsonFile) -> str:
    """Return the problem that the pair, its key or, for a file of one pair, the file's name names."""
    if pair.name is not None:
        return _without_ending(pair.name)
    for key in _NAMES:
        if isinstance(pair.node.value.get(key), (str, int)):
            return _without_ending(str(pair.node.value[key]))
    if pair.node.keys and isinstance(pair.node.keys[-1], str):
        return _without_ending(pair.node.keys[-1])
    if not pair.node.keys and not file.by_line:
        return _without_ending(escape_surrogates(file.path.stem))
    raise pair.node.fault(f"does not name its problem; add one of the keys {', '.join(_NAMES)}")


def _without_ending(name: str) -> str:
    return name.removesuffix(".py")


def _scale_of(unit: JsonNode) -> float:
    scale = NS_PER_UNIT.get(unit.text())
    if scale is None:
        raise unit.fault(f"{unit.value!r} is not a known unit: {', '.join(NS_PER_UNIT)}")
    return scale


def _read_side(
    node: JsonNode, problem: str, side: str, scale: float | None, file: JsonFile
) -> list[ImportedMeasurement]:
    if isinstance(node.value, dict):
        if node.value.keys() >= eval_results.RESULT:
            return [eval_results.make_measurement((node, "0", 0), side, None)]
        if node.value.keys() >= metric_results.TASK:
            return metric_results.read_task(node, PurePath(problem), side, file)
        return [_read_times(node)]
    if scale is None and isinstance(node.value, (int, float)):
        raise node.fault("is a time without a unit; add the key unit to the pair, or say it with --mapping FILE")
    columns = {"candidate_median_ns": node.amount(scale or 1.0)}
    return [ImportedMeasurement(problem=problem, candidate=side, gpu=None, columns=columns, labels=(MEAN,))]


def _read_times(node: JsonNode) -> ImportedMeasurement:
    """Read a result that has a time with its unit, and perhaps whether it is correct."""
    named = {key: match["unit"] for key in node.value if (match := _TIME.fullmatch(key.lower()))}
    correct = next((found for key in _CORRECT if (found := node.get(key)) is not None), None)
    passed = correct is None or correct.truth()
    if not named and passed:
        what = "is not a result that is known: it has no key with a time and its unit, such as mean_ms"
        raise node.fault(f"{what}; its keys are {', '.join(list(node.value)[:6])}")
    one = ImportedMeasurement(problem="", candidate="", gpu=None)
    if not passed:
        return replace(one, status=Status.INCORRECT_VALUES)
    key = next((key for key in named if "median" in key.lower()), next(iter(named)))
    columns = {"candidate_median_ns": node[key].amount(NS_PER_UNIT[named[key]])}
    return replace(one, columns=columns, labels=() if "median" in key.lower() else (MEAN,))


FORMAT: Final = ImportFormat(
    name="pairs",
    description='pairs of results before and after a change, {"before": …, "after": …}',
    knows=knows,
    read=read,
)
