"""KernelBench-X: golden results (eager PyTorch on one machine), ``metrics.json`` and ``summary.json`` of a method.

A golden file is a list of ``{input_size, ms, GB/s, TFLOPS}``, one file per task, one folder per machine; each time is
the median of one ``do_bench``. ``metrics.json`` is ``{"Category/task.py": {call_ok, exe_ok, performance, …}}``, mixed
with ``"N/A"``; ``summary.json`` has totals of the same and no result of its own. Neither names a GPU.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable
from pathlib import PurePath
from typing import Any, Final

from kernel_matrix.model.enums import Dtype, Language, Status
from kernel_matrix.sources.json_files import BadValueError, JsonFile, JsonNode, clean
from kernel_matrix.sources.measurement import (
    DEFAULT,
    EAGER,
    LONGEST_MESSAGE,
    NS_PER_MS,
    ImportedMeasurement,
    ImportFormat,
)

_ROW: Final = frozenset({"input_size", "ms"})
_TASK: Final = frozenset({"call_ok", "exe_ok"})
_SUMMARY: Final = frozenset({"method", "total"})
_MISSING: Final = "N/A"
_LONGEST_NAME: Final = 120
_DTYPES: Final = {
    **{dtype.value: dtype for dtype in Dtype},
    "float32": Dtype.FP32,
    "float16": Dtype.FP16,
    "bfloat16": Dtype.BF16,
    "float64": Dtype.FP64,
}
_RATES: Final = {"GB/s": ("bytes_per_s", 1e9), "TFLOPS": ("flops_per_s", 1e12)}


def read_golden(file: JsonFile) -> list[ImportedMeasurement]:
    """One workload per row; see :class:`ImportFormat`."""
    document = file.document()
    names: Counter[str] = Counter()

    def measured(node: JsonNode) -> ImportedMeasurement:
        return ImportedMeasurement(
            problem=clean(file.path.stem),
            candidate=EAGER,
            gpu=file.folder,
            host={"hostname": file.folder},
            workload=_unique(_workload(node["input_size"].value), names),
            columns={"language": Language.TORCH.value, **_row(node)},
        )

    return list(file.each(document.elements(), measured))


def read_metrics(file: JsonFile) -> list[ImportedMeasurement]:
    """One workload per timed row of a task, or one for a task without; see :class:`ImportFormat`."""
    document = file.document()
    method = _method(file)
    tasks = (node for _name, node in document.members())
    return [one for group in file.each(tasks, lambda node: _task(node, method, file)) for one in group]


def read_summary(file: JsonFile) -> list[ImportedMeasurement]:
    """Nothing: totals are no results."""
    document = file.document()
    method, total = document["method"].text(), document["total"].count()
    file.notes.append(f"a summary of {method} over {total} tasks, and no result: metrics.json beside it has those")
    return []


def _method(file: JsonFile) -> str:
    """As the summary beside the file says, or its folder."""
    beside = file.path.with_name("summary.json")
    try:
        return JsonNode(JsonFile(beside).first())["method"].text() if beside.is_file() else file.folder
    except BadValueError:
        return file.folder


def _task(node: JsonNode, method: str, file: JsonFile) -> list[ImportedMeasurement]:
    name = PurePath(str(node.keys[-1]))
    status, dtype = _status(node), node.get("dtype")
    common: dict[str, Any] = {
        "problem": str(name.with_suffix("")),
        "candidate": method,
        "gpu": None,
        "status": status,
        "message": None if status is Status.PASSED else _why(node),
    }
    columns = {
        "category": name.parent.name or None,
        "origin_method": method,
        "dtype": _dtype(dtype),
    }
    rows = node.get("performance")
    if status is not Status.PASSED or rows is None or rows.value in (_MISSING, []):
        return [ImportedMeasurement(**common, workload=DEFAULT, columns=columns)]
    names: Counter[str] = Counter()

    def measured(row: JsonNode) -> ImportedMeasurement:
        workload = _unique(_workload(row["input_size"].value), names)
        return ImportedMeasurement(**common, workload=workload, columns={**columns, **_row(row)})

    return list(file.each(rows.elements(), measured))


def _status(node: JsonNode) -> Status:
    """KernelBench-X counts a kernel as compiled when its file runs with its test; then outputs are compared."""
    if not node["call_ok"].truth():
        return Status.COMPILE_ERROR
    return Status.PASSED if node["exe_ok"].truth() else Status.INCORRECT_VALUES


def _why(node: JsonNode) -> str | None:
    error = node.get("error")
    return None if error is None or error.value in (_MISSING, "") else str(error.value)[:LONGEST_MESSAGE]


def _dtype(node: JsonNode | None) -> str | None:
    found = _DTYPES.get(node.value) if node is not None and isinstance(node.value, str) else None
    return found.value if found else None


def _row(node: JsonNode) -> dict[str, Any]:
    """Columns of one timed input."""
    rates = {
        column: found.amount(scale)
        for key, (column, scale) in _RATES.items()
        if (found := node.get(key)) is not None and found.value != _MISSING
    }
    values = json.dumps({"input_size": node["input_size"].value}, sort_keys=True)
    return {"candidate_median_ns": node["ms"].amount(NS_PER_MS), "values_json": values, **rates}


def _workload(size: Any) -> str:
    """``256x256,256x256`` for the shapes that a row lists; a long one is cut, and its digest added."""
    said = ",".join(map(_shape, size)) if isinstance(size, list) else _shape(size)
    if len(said) <= _LONGEST_NAME:
        return said or DEFAULT
    return f"{said[:_LONGEST_NAME]}…{hashlib.sha256(said.encode()).hexdigest()[:8]}"


def _shape(value: Any) -> str:
    if isinstance(value, list):
        if all(type(size) is int for size in value):
            return "x".join(map(str, value)) or "scalar"
        return f"({','.join(map(_shape, value))})"
    return value if isinstance(value, str) else json.dumps(value)


def _unique(name: str, names: Counter[str]) -> str:
    """``name``, numbered from the second time on: some files time several things that they describe alike."""
    names[name] += 1
    return name if names[name] == 1 else f"{name}#{names[name]}"


def _any_with(values: Iterable[Any], keys: frozenset[str]) -> bool:
    return any(isinstance(value, dict) and value.keys() >= keys for value in values)


GOLDEN: Final = ImportFormat(
    name="kernelbenchx-golden",
    said="KernelBench-X's golden results, [{input_size, ms, GB/s, TFLOPS}] per task",
    knows=lambda value: isinstance(value, list) and _any_with(value, _ROW),
    read=read_golden,
)
METRICS: Final = ImportFormat(
    name="kernelbenchx-metrics",
    said="KernelBench-X's metrics.json, {task: {call_ok, exe_ok, performance, …}}",
    knows=lambda value: isinstance(value, dict) and _any_with(value.values(), _TASK),
    read=read_metrics,
)
SUMMARY: Final = ImportFormat(
    name="kernelbenchx-summary",
    said="KernelBench-X's summary.json, {method, total, …}: counted and checked, it has no results",
    knows=lambda value: isinstance(value, dict) and value.keys() >= _SUMMARY,
    read=read_summary,
)
