"""Import KernelBench-X: golden results (eager PyTorch on one machine), and ``metrics.json`` of a method.

A golden file is a list of ``{input_size, ms, GB/s, TFLOPS}``, with a file per task and a folder per machine; a time is
the median of one ``do_bench``. ``metrics.json`` is ``{"Category/task.py": {call_ok, exe_ok, performance, …}}``, with
``"N/A"`` for missing values. ``summary.json`` has only totals. None of them names a GPU.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import PurePath
from typing import Any, Final

from kernel_matrix.model.enums import Language, Status
from kernel_matrix.sources.json_files import BadValueError, JsonFile, JsonNode
from kernel_matrix.sources.measurement import (
    DEFAULT,
    EAGER,
    LONGEST_MESSAGE,
    NS_PER_MS,
    ImportedMeasurement,
    ImportFormat,
    find_dtype,
    name_workload,
)
from kernel_matrix.untrusted_json import escape_surrogates

_ROW: Final = frozenset({"input_size", "ms"})
TASK: Final = frozenset({"call_ok", "exe_ok"})
"""Keys that the result of every task has."""
_SUMMARY: Final = frozenset({"method", "total"})
_MISSING: Final = "N/A"
_RATES: Final = {"GB/s": ("bytes_per_s", 1e9), "TFLOPS": ("flops_per_s", 1e12)}


def read_golden(file: JsonFile) -> list[ImportedMeasurement]:
    """Read one workload per row; see :class:`ImportFormat`."""
    document = file.document()
    names: Counter[str] = Counter()

    def measured(node: JsonNode) -> ImportedMeasurement:
        return ImportedMeasurement(
            problem=escape_surrogates(file.path.stem),
            candidate=EAGER,
            gpu=None,
            host={"hostname": file.folder},
            workload=_make_unique(name_workload(node["input_size"].value), names),
            columns={"language": Language.TORCH.value, **_read_row(node)},
        )

    return list(file.each(document.elements(), measured))


def read_metrics(file: JsonFile) -> list[ImportedMeasurement]:
    """Read one workload per timed row of a task, or one per task without rows; see :class:`ImportFormat`."""
    document = file.document()
    method = _read_method(file)
    tasks = document.members()
    found = file.each(tasks, lambda task: read_task(task[1], PurePath(task[0]), method, file))
    return [one for group in found for one in group]


def read_summary(file: JsonFile) -> list[ImportedMeasurement]:
    """Check a summary, which has no results."""
    document = file.document()
    method, total = document["method"].text(), document["total"].count()
    file.notes.append(f"a summary of {method} over {total} tasks without results, which are in metrics.json beside it")
    return []


def _read_method(file: JsonFile) -> str:
    """Return the method in the summary beside the file, or else the name of the folder."""
    summary = file.path.with_name("summary.json")
    try:
        return JsonNode(JsonFile(summary).first())["method"].text() if summary.is_file() else file.folder
    except BadValueError:
        return file.folder


def read_task(node: JsonNode, name: PurePath, method: str, file: JsonFile) -> list[ImportedMeasurement]:
    """Read the result of one task.

    Args:
        node: The result.
        name: Name of the task, ``Category/task.py``.
        method: What wrote the kernel.
        file: Gets the rows that cannot be read.
    """
    status, dtype = _read_status(node), node.get("dtype")
    common: dict[str, Any] = {
        "problem": str(name.with_suffix("")),
        "candidate": method,
        "gpu": None,
        "status": status,
        "message": None if status is Status.PASSED else _read_message(node),
    }
    columns = {
        "category": name.parent.name or None,
        "origin_method": method,
        "dtype": _read_dtype(dtype),
    }
    rows = node.get("performance")
    if status is not Status.PASSED or rows is None or rows.value in (_MISSING, []):
        return [ImportedMeasurement(**common, workload=DEFAULT, columns=columns)]
    names: Counter[str] = Counter()

    def measured(row: JsonNode) -> ImportedMeasurement:
        workload = _make_unique(name_workload(row["input_size"].value), names)
        return ImportedMeasurement(**common, workload=workload, columns={**columns, **_read_row(row)})

    return list(file.each(rows.elements(), measured))


def _read_status(node: JsonNode) -> Status:
    """Convert the status: ``call_ok`` means that the file ran with its test, ``exe_ok`` that the outputs match."""
    if not node["call_ok"].truth():
        return Status.COMPILE_ERROR
    return Status.PASSED if node["exe_ok"].truth() else Status.INCORRECT_VALUES


def _read_message(node: JsonNode) -> str | None:
    error = node.get("error")
    return None if error is None or error.value in (_MISSING, "") else str(error.value)[:LONGEST_MESSAGE]


def _read_dtype(node: JsonNode | None) -> str | None:
    found = find_dtype(node.value) if node is not None and isinstance(node.value, str) else None
    return found.value if found else None


def _read_row(node: JsonNode) -> dict[str, Any]:
    """Return the columns of one timed input."""
    rates = {
        column: found.amount(scale)
        for key, (column, scale) in _RATES.items()
        if (found := node.get(key)) is not None and found.value != _MISSING
    }
    values = json.dumps({"input_size": node["input_size"].value}, sort_keys=True)
    return {"candidate_median_ns": node["ms"].amount(NS_PER_MS), "values_json": values, **rates}


def _make_unique(name: str, names: Counter[str]) -> str:
    """Return ``name``, numbered if repeated, because some files have several rows of one shape."""
    names[name] += 1
    return name if names[name] == 1 else f"{name}#{names[name]}"


def _any_with(values: Iterable[Any], keys: frozenset[str]) -> bool:
    return any(isinstance(value, dict) and value.keys() >= keys for value in values)


GOLDEN: Final = ImportFormat(
    name="kernelbenchx-golden",
    description="KernelBench-X's golden results, [{input_size, ms, GB/s, TFLOPS}] per task",
    knows=lambda value: isinstance(value, list) and _any_with(value, _ROW),
    read=read_golden,
    folder_is_machine=True,
)
METRICS: Final = ImportFormat(
    name="kernelbenchx-metrics",
    description="KernelBench-X's metrics.json, {task: {call_ok, exe_ok, performance, …}}",
    knows=lambda value: isinstance(value, dict) and _any_with(value.values(), TASK),
    read=read_metrics,
)
SUMMARY: Final = ImportFormat(
    name="kernelbenchx-summary",
    description="KernelBench-X's summary.json, {method, total, …}: counted and checked, it has no results",
    knows=lambda value: isinstance(value, dict) and value.keys() >= _SUMMARY,
    read=read_summary,
)
