"""Import JSON of Google Benchmark: ``{context, benchmarks: [{name, run_type, real_time, cpu_time, time_unit, …}]}``.

A row of run type ``iteration`` is one repetition; its time is the mean over its iterations. Rows of type ``aggregate``
are mean, median, stddev and cv over repetitions. Repetitions become samples; aggregates are used if there are no
repetitions. Times are from the host's clock, except for benchmarks with ``manual_time`` in their name.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import PurePath
from statistics import fmean, median, stdev
from typing import Any, Final

from kernel_matrix.model.enums import Status
from kernel_matrix.model.instants import parse_instant
from kernel_matrix.sources.json_files import BadValueError, JsonFile, JsonNode
from kernel_matrix.sources.measurement import DEFAULT, HOST_CLOCK, MEAN, NS_PER_UNIT, ImportedMeasurement, ImportFormat

_FITS: Final = frozenset({"BigO", "RMS"})
"""Aggregates of complexity fits, which are not times."""
_MANUAL: Final = "manual_time"
_ITERATION, _AGGREGATE = "iteration", "aggregate"


def read(file: JsonFile) -> list[ImportedMeasurement]:
    """Read one measurement per benchmark and arguments; see :class:`ImportFormat`."""
    document = file.document()
    context = _read_context(document["context"])
    rows = list(file.each(document["benchmarks"].elements(), _read_row))
    fits = sum(row is _NO_TIME for row in rows)
    if fits:
        file.notes.append(f"{fits} rows are complexity fits without a time")
    named: dict[str, list[_Row]] = {}
    for row in rows:
        if row is not _NO_TIME:
            named.setdefault(row["run_name"], []).append(row)
    return list(file.each(named.values(), lambda group: _make_measurement(group, context)))


_Row = dict[str, Any]
_NO_TIME: Final[_Row] = {}


def _read_context(node: JsonNode) -> _Row:
    """Read program, host name and start time."""
    executable, host, date = node.get("executable"), node.get("host_name"), node.get("date")
    return {
        "candidate": PurePath(executable.text()).name if executable else "benchmark",
        "hostname": host and host.text(),
        "started_at": date and _parse_time(date.text()),
    }


def _parse_time(text: str) -> datetime | None:
    """Return the time in UTC, or ``None`` without a UTC offset (old versions write none)."""
    try:
        at = parse_instant(text)
    except ValueError:
        return None
    return at.astimezone(timezone.utc) if at.tzinfo else None


def _read_row(node: JsonNode) -> _Row:
    kind, aggregate, unit = node.get("run_type"), node.get("aggregate_name"), node.get("time_unit")
    if aggregate is not None and aggregate.value in _FITS:
        return _NO_TIME
    name, run_name, iterations = node["name"].text(), node.get("run_name"), node.get("iterations")
    row: _Row = {
        "node": node,
        "run_name": run_name.text() if run_name else name,
        "type": kind.text() if kind else _ITERATION,
        "aggregate": aggregate.text() if aggregate else "",
        "iterations": iterations.count() if iterations else None,
    }
    failed = [key for key in ("error_occurred", "skipped") if (found := node.get(key)) is not None and found.truth()]
    if failed:
        message = node.get("error_message") or node.get("skip_message")
        status = Status.RUNTIME_ERROR if failed[0] == "error_occurred" else Status.UNSUPPORTED
        return {**row, "status": status, "message": message and message.text()}
    scale = NS_PER_UNIT.get(unit.text()) if unit else 1.0
    if scale is None:
        raise node["time_unit"].fault(f"{node['time_unit'].value!r} is not a known unit: {', '.join(NS_PER_UNIT)}")
    # A coefficient of variation is a ratio and has no unit.
    return {**row, "status": Status.PASSED, "ns": node["real_time"].amount(1.0 if row["aggregate"] == "cv" else scale)}


def _make_measurement(rows: Sequence[_Row], context: _Row) -> ImportedMeasurement:
    run_name: str = rows[0]["run_name"]
    problem, _, workload = run_name.partition("/")
    failed = next((row for row in rows if row["status"] is not Status.PASSED), None)
    common: _Row = {
        "problem": problem,
        "candidate": context["candidate"],
        "gpu": None,
        "workload": workload or DEFAULT,
        "host": {"hostname": context["hostname"]},
    }
    started = {"started_at": context["started_at"]}
    if failed:
        return ImportedMeasurement(**common, status=failed["status"], message=failed["message"], columns=started)
    manual = _MANUAL in run_name.split("/")
    repeated = [row for row in rows if row["type"] == _ITERATION]
    columns, labels = _from_repetitions(repeated) if repeated else _from_aggregates(rows)
    if not manual:
        columns["candidate_wall_median_ns"] = columns["candidate_median_ns"]
    return ImportedMeasurement(
        **common,
        columns={**started, **columns},
        labels=labels if manual else (*labels, HOST_CLOCK),
        samples=tuple(
            {"calls_per_sample": row["iterations"], "device_ns" if manual else "wall_ns": round(row["ns"])}
            for row in repeated
        ),
    )


def _from_repetitions(rows: Sequence[_Row]) -> tuple[_Row, tuple[str, ...]]:
    times = [row["ns"] for row in rows]
    mean = fmean(times)
    return {
        "candidate_median_ns": median(times),
        "candidate_samples": len(times),
        "spread_within": stdev(times) / mean if len(times) > 1 and mean else None,
    }, () if len(times) > 1 else (MEAN,)  # one repetition is a mean over its iterations


def _from_aggregates(rows: Sequence[_Row]) -> tuple[_Row, tuple[str, ...]]:
    by_name = {row["aggregate"]: row["ns"] for row in rows}
    chosen = next((name for name in ("median", "mean") if name in by_name), None)
    node: JsonNode = rows[0]["node"]
    if chosen is None:
        raise BadValueError("there is no repetition, median or mean", node.keys, node.line)
    repetitions, mean, deviation = node.get("repetitions"), by_name.get("mean"), by_name.get("stddev")
    spread = deviation / mean if mean and deviation is not None else by_name.get("cv")
    columns = {
        "candidate_median_ns": by_name[chosen],
        "candidate_samples": repetitions and repetitions.count(),
        "spread_within": spread,
    }
    return columns, () if chosen == "median" else (MEAN,)


def _recognises(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() >= {"context", "benchmarks"} and "devices" not in value


FORMAT: Final = ImportFormat(
    name="google-benchmark",
    description="Google Benchmark's JSON, {context, benchmarks}",
    knows=_recognises,
    read=read,
)
