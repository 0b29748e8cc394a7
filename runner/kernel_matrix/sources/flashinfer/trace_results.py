"""Import evaluation traces of flashinfer-bench and SOL-ExecBench: one JSON object per line with one evaluation.

``{definition, workload: {axes, inputs, uuid}, solution, evaluation: {status, environment, timestamp, log, correctness,
performance: {latency_ms, reference_latency_ms, speedup_factor}}}``. Latencies are medians, in flashinfer-bench means of
the medians of three trials. A line without solution or evaluation is a workload without a result. SOL-ExecBench writes
a reference latency of 0 if the reference could not be timed.
"""

from __future__ import annotations

import json
from datetime import datetime, timezone
from typing import Final

from kernel_matrix.model.enums import Status
from kernel_matrix.model.instants import parse_instant
from kernel_matrix.sources.json_files import JsonFile, JsonNode
from kernel_matrix.sources.measurement import DEFAULT, LONGEST_MESSAGE, NS_PER_MS, ImportedMeasurement, ImportFormat

_STATUSES: Final = {
    "PASSED": Status.PASSED,
    "INCORRECT_SHAPE": Status.INCORRECT_SHAPE,
    "INCORRECT_DTYPE": Status.INCORRECT_DTYPE,
    "INCORRECT_NUMERICAL": Status.INCORRECT_VALUES,
    "COMPILE_ERROR": Status.COMPILE_ERROR,
    "RUNTIME_ERROR": Status.RUNTIME_ERROR,
    "TIMEOUT": Status.TIMEOUT,
    "REWARD_HACK": Status.POLICY_VIOLATION,
    "INVALID_REFERENCE": Status.INVALID_PROBLEM,
}
_LIBRARIES: Final = ("torch", "triton", "cuda")
_MAX_DEVIATION: Final = 0.01
"""Largest relative difference between the speed-up in the file and the quotient of its times."""


def read(file: JsonFile) -> list[ImportedMeasurement]:
    """Read one measurement per line with an evaluation; see :class:`ImportFormat`."""
    without = 0

    def measured(node: JsonNode) -> ImportedMeasurement | None:
        nonlocal without
        definition, workload = node["definition"].text(), node["workload"]
        solution, evaluation = node.get("solution"), node.get("evaluation")
        if solution is None or evaluation is None:
            without += 1
            return None
        return _make_measurement(definition, workload, solution.text(), evaluation)

    found = list(file.each(file.documents(), measured))
    if without:
        file.notes.append(f"{without} lines are workloads without an evaluation")
    return found


def _make_measurement(definition: str, workload: JsonNode, solution: str, evaluation: JsonNode) -> ImportedMeasurement:
    status = _read_status(evaluation["status"])
    environment, log, uuid = evaluation.get("environment"), evaluation.get("log"), workload.get("uuid")
    hardware = environment.get("hardware") if environment else None
    gpu = hardware.text() if hardware else None
    columns, warnings = _read_times(evaluation) if status is Status.PASSED else ({}, ())
    axes = workload.get("axes")
    return ImportedMeasurement(
        problem=definition,
        candidate=solution,
        gpu=gpu,
        host={"gpu_name": gpu},
        workload=uuid.text() if uuid else DEFAULT,
        status=status,
        message=None if status is Status.PASSED or log is None else log.text()[:LONGEST_MESSAGE] or None,
        columns={
            "started_at": _read_time(evaluation.get("timestamp")),
            "values_json": None if axes is None else json.dumps(axes.value, sort_keys=True),
            **_read_libraries(environment),
            **columns,
        },
        warnings=warnings,
    )


def _read_status(node: JsonNode) -> Status:
    text = node.text()
    found = _STATUSES.get(text.upper())
    if found is None:
        raise node.fault(f"{text!r} is not known; known are {', '.join(_STATUSES)}")
    return found


def _read_times(evaluation: JsonNode) -> tuple[dict[str, float], tuple[str, ...]]:
    performance = evaluation.get("performance")
    latency = performance.get("latency_ms") if performance else None
    if performance is None or latency is None:
        return {}, ()
    reference, stated = performance.get("reference_latency_ms"), performance.get("speedup_factor")
    columns = {"candidate_median_ns": latency.amount(NS_PER_MS)}
    baseline = reference.amount(NS_PER_MS) if reference is not None else None
    if not baseline:
        return columns, () if baseline is None else ("reference_latency_ms is 0: the reference was not timed",)
    columns["baseline_median_ns"] = baseline
    if stated is None or not columns["candidate_median_ns"]:
        return columns, ()
    speedup = baseline / columns["candidate_median_ns"]
    contradicts = abs(stated.number() - speedup) > _MAX_DEVIATION * speedup
    warning = f"the file has a speed-up of {stated.number():.4g}, but its times give {speedup:.4g}"
    return columns, (warning,) if contradicts else ()


def _read_libraries(environment: JsonNode | None) -> dict[str, str]:
    libraries = environment.get("libs") if environment else None
    if libraries is None:
        return {}
    return {name: found.text() for name in _LIBRARIES if (found := libraries.get(name)) is not None}


def _read_time(node: JsonNode | None) -> datetime | None:
    if node is None:
        return None
    try:
        at = parse_instant(node.text())
    except ValueError:
        raise node.fault("is not a time in ISO 8601") from None
    # A time without offset is wrong by some hours at most, and still orders the evaluations of one machine.
    return at.astimezone(timezone.utc) if at.tzinfo else at.replace(tzinfo=timezone.utc)


FORMAT: Final = ImportFormat(
    name="trace",
    description="traces of flashinfer-bench and SOL-ExecBench, {definition, workload, solution, evaluation} per line",
    knows=lambda value: isinstance(value, dict) and value.keys() >= {"definition", "workload"},
    read=read,
)
