"""nvbench's JSON: ``{meta, devices, benchmarks: [{name, states: [{device, axis_values, summaries}]}]}``.

A summary is ``{tag, data: [{name, type, value}]}``, its value a number or the digits of one; durations are seconds,
rates per second. With ``--jsonbin`` the times of all samples lie in files beside, 32-bit floats of seconds.
"""

from __future__ import annotations

import math
import sys
from array import array
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from statistics import median
from typing import Any, Final

from kernel_matrix.model.enums import Regime, Status
from kernel_matrix.sources.json_files import BadValueError, JsonFile, JsonNode
from kernel_matrix.sources.measurement import DEFAULT, MEAN, NS_PER_S, ImportedMeasurement, ImportFormat

_MEDIAN, _MEAN = "nv/cold/time/gpu/median", "nv/cold/time/gpu/mean"
_SPREAD = "nv/cold/time/gpu/stdev/relative"
_WALL = "nv/cold/time/cpu/mean"
_COUNT = "nv/cold/sample_size"
_BANDWIDTH = "nv/cold/bw/global/bytes_per_second"
_CLOCK = "nv/cold/sm_clock_rate/mean"
_SAMPLES = "nv/json/bin:nv/cold/sample_times"
_MOST_BYTES = 64 << 20
_FLOAT_BYTES = 4


def read(file: JsonFile) -> list[ImportedMeasurement]:
    """One measurement per state; see :class:`ImportFormat`."""
    document = file.document()
    devices = dict(file.each(document["devices"].elements(), _device))
    candidate = _program(document.get("meta"))

    def measured(benchmark: JsonNode) -> list[ImportedMeasurement]:
        states = benchmark["states"].elements()
        return list(file.each(states, lambda state: _measured(benchmark, state, devices, candidate, file)))

    return [one for group in file.each(document["benchmarks"].elements(), measured) for one in group]


def _program(meta: JsonNode | None) -> str:
    """What was run, as its command line says."""
    arguments = meta.get("argv") if meta else None
    first = next(arguments.elements(), None) if arguments else None
    return PurePosixPath(first.text()).name if first else "nvbench"


def _device(node: JsonNode) -> tuple[int, Mapping[str, Any]]:
    version, memory = node.get("sm_version"), node.get("global_memory_size")
    number = version.count() if version else None
    return node["id"].count(), {
        "gpu_name": node["name"].text(),
        "compute_capability": number and f"{number // 100}.{number % 100 // 10}",
        "memory_bytes": memory and int(memory.amount()),
    }


def _measured(
    benchmark: JsonNode, state: JsonNode, devices: Mapping[int, Mapping[str, Any]], candidate: str, file: JsonFile
) -> ImportedMeasurement:
    device = state.get("device")
    host = {} if device is None else devices.get(device.count())
    if device is not None and host is None:
        raise device.fault(f"is no device of the file: {', '.join(map(str, devices)) or 'it has none'}")
    skipped, reason = state.get("is_skipped"), state.get("skip_reason")
    common: dict[str, Any] = {
        "problem": benchmark["name"].text(),
        "candidate": candidate,
        "gpu": host["gpu_name"] if host else None,
        "host": host or {},
        "workload": _workload(state),
    }
    if skipped is not None and skipped.truth():
        return ImportedMeasurement(**common, status=Status.UNSUPPORTED, message=reason.text() if reason else None)
    summaries = _summaries(state)
    columns, labels = _columns(summaries)
    times = _sample_times(summaries.get(_SAMPLES), file)
    if times:
        columns |= {"candidate_median_ns": median(times), "candidate_samples": len(times)}
        labels = ()
    return ImportedMeasurement(**common, columns=columns, labels=labels, samples=tuple(map(_sample, times)))


def _workload(state: JsonNode) -> str:
    """``BlockSize=256,T=F32``, or what the state is called; not which device, which has a column of its own."""
    axes = state.get("axis_values")
    if axes is None:
        name = state.get("name")
        words = [word for word in name.text().split() if not word.startswith("Device=")] if name else []
        return ",".join(words) or DEFAULT
    return ",".join(f"{axis['name'].text()}={_said(axis['value'])}" for axis in axes.elements()) or DEFAULT


def _said(node: JsonNode) -> str:
    return node.text() if isinstance(node.value, str) else f"{node.number():g}"


_Summaries = Mapping[str, Mapping[str, JsonNode]]
"""Tag → name of the value → value."""


def _summaries(state: JsonNode) -> _Summaries:
    listed = state.get("summaries")
    found: dict[str, Mapping[str, JsonNode]] = {}
    for summary in listed.elements() if listed else ():
        data = summary.get("data")
        values = {value["name"].text(): value["value"] for value in data.elements()} if data else {}
        found[summary["tag"].text()] = values
    return found


def _value(summaries: _Summaries, tag: str, scale: float = 1.0) -> float | None:
    """The one value of a summary; null where the summary is not there, or its value is null or not finite."""
    node = summaries.get(tag, {}).get("value")
    if node is None:
        return None
    try:
        number = float(node.value) if isinstance(node.value, str) else node.number()
    except ValueError as error:
        raise error if isinstance(error, BadValueError) else node.fault("must be a number") from None
    # A relative deviation is infinite where there is but one sample; a time never is.
    return JsonNode(number, node.keys, node.line).amount(scale) if math.isfinite(number) or tag != _SPREAD else None


def _columns(summaries: _Summaries) -> tuple[dict[str, Any], tuple[str, ...]]:
    middle, mean = _value(summaries, _MEDIAN, NS_PER_S), _value(summaries, _MEAN, NS_PER_S)
    count, clock = _value(summaries, _COUNT), _value(summaries, _CLOCK)
    columns = {
        "candidate_median_ns": mean if middle is None else middle,
        "candidate_wall_median_ns": _value(summaries, _WALL, NS_PER_S),
        "candidate_samples": None if count is None else int(count),
        "spread_within": _value(summaries, _SPREAD),
        "bytes_per_s": _value(summaries, _BANDWIDTH),
        "sm_clock_mhz": None if clock is None else clock / 1e6,
    }
    return columns, (MEAN,) if middle is None and mean is not None else ()


def _sample_times(values: Mapping[str, JsonNode] | None, file: JsonFile) -> Sequence[float]:
    """Nanoseconds of each sample; none where the file beside is missing or is not as long as it is said to be.

    The name is what a command line once wrote: only its last two parts are looked for, beside the document.
    """
    if not values or "filename" not in values:
        return ()
    said = PurePosixPath(values["filename"].text())
    beside = file.path.parent / said.parent.name / said.name
    if not said.name or ".." in said.parts[-2:] or not beside.is_file() or beside.is_symlink():
        file.notes.append(f"samples are not beside it: {said}")
        return ()
    return _floats(beside, file, None if "size" not in values else str(values["size"].value))


def _floats(path: Path, file: JsonFile, count: str | None) -> Sequence[float]:
    size = path.stat().st_size
    if size > _MOST_BYTES or size % _FLOAT_BYTES or (count is not None and count != str(size // _FLOAT_BYTES)):
        file.notes.append(f"{path.name} holds {size} bytes, not {count} 32-bit numbers: its samples are left out")
        return ()
    seconds = array("f", path.read_bytes())
    if sys.byteorder == "big":
        seconds.byteswap()
    if not all(math.isfinite(one) and one >= 0 for one in seconds):
        file.notes.append(f"{path.name} holds numbers that are no times: its samples are left out")
        return ()
    return [one * NS_PER_S for one in seconds]


def _sample(nanoseconds: float) -> dict[str, Any]:
    return {
        "regime": Regime.COLD.value,
        "calls_per_sample": 1,
        "device_ns": round(nanoseconds),
    }


FORMAT: Final = ImportFormat(
    name="nvbench",
    said="nvbench's JSON, {devices, benchmarks: [{states}]}",
    knows=lambda value: isinstance(value, dict) and value.keys() >= {"devices", "benchmarks"},
    read=read,
)
