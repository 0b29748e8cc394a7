"""Import JSON of nvbench: ``{meta, devices, benchmarks: [{name, states: [{device, axis_values, summaries}]}]}``.

A summary is ``{tag, data: [{name, type, value}]}`` with a number or a number in text; durations are in seconds, rates
per second. With ``--jsonbin`` the times of all samples are in separate files, as 32-bit floats in seconds.
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
    """Read one measurement per state; see :class:`ImportFormat`."""
    document = file.document()
    devices = dict(file.each(document["devices"].elements(), _read_device))
    candidate = _read_program(document.get("meta"))

    def measure_states(benchmark: JsonNode) -> list[ImportedMeasurement]:
        states = benchmark["states"].elements()
        return list(file.each(states, lambda state: _make_measurement(benchmark, state, devices, candidate, file)))

    return [one for group in file.each(document["benchmarks"].elements(), measure_states) for one in group]


def _read_program(meta: JsonNode | None) -> str:
    """Return the program's name from its command line."""
    arguments = meta.get("argv") if meta else None
    first = next(arguments.elements(), None) if arguments else None
    return PurePosixPath(first.text()).name if first else "nvbench"


def _read_device(node: JsonNode) -> tuple[int, Mapping[str, Any]]:
    version, memory = node.get("sm_version"), node.get("global_memory_size")
    number = version.count() if version else None
    return node["id"].count(), {
        "gpu_name": node["name"].text(),
        "compute_capability": number and f"{number // 100}.{number % 100 // 10}",
        "memory_bytes": memory and int(memory.amount()),
    }


def _make_measurement(
    benchmark: JsonNode, state: JsonNode, devices: Mapping[int, Mapping[str, Any]], candidate: str, file: JsonFile
) -> ImportedMeasurement:
    device = state.get("device")
    host = {} if device is None else devices.get(device.count())
    if device is not None and host is None:
        raise device.fault(f"is not a device of the file: {', '.join(map(str, devices)) or 'it has none'}")
    skipped, reason = state.get("is_skipped"), state.get("skip_reason")
    common: dict[str, Any] = {
        "problem": benchmark["name"].text(),
        "candidate": candidate,
        "gpu": host["gpu_name"] if host else None,
        "host": host or {},
        "workload": _name_workload(state),
    }
    if skipped is not None and skipped.truth():
        return ImportedMeasurement(**common, status=Status.UNSUPPORTED, message=reason.text() if reason else None)
    summaries = _read_summaries(state)
    columns, labels = _make_columns(summaries)
    times = _read_sample_times(summaries.get(_SAMPLES), file)
    if times:
        columns |= {"candidate_median_ns": median(times), "candidate_samples": len(times)}
        labels = ()
    samples = ({"regime": Regime.COLD.value, "calls_per_sample": 1, "device_ns": round(time)} for time in times)
    return ImportedMeasurement(**common, columns=columns, labels=labels, samples=tuple(samples))


def _name_workload(state: JsonNode) -> str:
    """Return ``BlockSize=256,T=F32`` or the name of the state, without the device, which is another column."""
    axes = state.get("axis_values")
    if axes is None:
        name = state.get("name")
        words = [word for word in name.text().split() if not word.startswith("Device=")] if name else []
        return ",".join(words) or DEFAULT
    return ",".join(f"{axis['name'].text()}={_axis_value(axis['value'])}" for axis in axes.elements()) or DEFAULT


def _axis_value(node: JsonNode) -> str:
    return node.text() if isinstance(node.value, str) else f"{node.number():g}"


_Summaries = Mapping[str, Mapping[str, JsonNode]]
"""Tag → name of the value → value."""


def _read_summaries(state: JsonNode) -> _Summaries:
    listed = state.get("summaries")
    found: dict[str, Mapping[str, JsonNode]] = {}
    for summary in listed.elements() if listed else ():
        data = summary.get("data")
        values = {value["name"].text(): value["value"] for value in data.elements()} if data else {}
        found[summary["tag"].text()] = values
    return found


def _read_value(summaries: _Summaries, tag: str, scale: float = 1.0) -> float | None:
    """Return the value of a summary, or ``None`` if it is missing, null or an infinite relative deviation."""
    node = summaries.get(tag, {}).get("value")
    if node is None:
        return None
    try:
        number = float(node.value) if isinstance(node.value, str) else node.number()
    except ValueError as error:
        raise error if isinstance(error, BadValueError) else node.fault("must be a number") from None
    # nvbench writes an infinite relative deviation for a single sample.
    return JsonNode(number, node.keys, node.line).amount(scale) if math.isfinite(number) or tag != _SPREAD else None


def _make_columns(summaries: _Summaries) -> tuple[dict[str, Any], tuple[str, ...]]:
    middle, mean = _read_value(summaries, _MEDIAN, NS_PER_S), _read_value(summaries, _MEAN, NS_PER_S)
    count, clock = _read_value(summaries, _COUNT), _read_value(summaries, _CLOCK)
    columns = {
        "candidate_median_ns": mean if middle is None else middle,
        "candidate_wall_median_ns": _read_value(summaries, _WALL, NS_PER_S),
        "candidate_samples": None if count is None else int(count),
        "spread_within": _read_value(summaries, _SPREAD),
        "bytes_per_s": _read_value(summaries, _BANDWIDTH),
        "sm_clock_mhz": None if clock is None else clock / 1e6,
    }
    return columns, (MEAN,) if middle is None and mean is not None else ()


def _read_sample_times(values: Mapping[str, JsonNode] | None, file: JsonFile) -> Sequence[float]:
    """Read the nanoseconds of each sample; none if the sample file is missing or has the wrong size.

    The recorded path may be from another machine, so only its last two parts are used, beside the document.
    """
    if not values or "filename" not in values:
        return ()
    recorded = PurePosixPath(values["filename"].text())
    path = file.path.parent / recorded.parent.name / recorded.name
    if not recorded.name or ".." in recorded.parts[-2:] or not path.is_file() or path.is_symlink():
        file.notes.append(f"sample file is missing: {recorded}")
        return ()
    return _read_floats(path, file, None if "size" not in values else str(values["size"].value))


def _read_floats(path: Path, file: JsonFile, count: str | None) -> Sequence[float]:
    size = path.stat().st_size
    if size > _MOST_BYTES or size % _FLOAT_BYTES or (count is not None and count != str(size // _FLOAT_BYTES)):
        file.notes.append(f"{path.name} has {size} bytes, not {count} 32-bit numbers: its samples are ignored")
        return ()
    seconds = array("f", path.read_bytes())
    if sys.byteorder == "big":
        seconds.byteswap()
    if not all(math.isfinite(one) and one >= 0 for one in seconds):
        file.notes.append(f"{path.name} has numbers that are not times: its samples are ignored")
        return ()
    return [one * NS_PER_S for one in seconds]


FORMAT: Final = ImportFormat(
    name="nvbench",
    description="nvbench's JSON, {devices, benchmarks: [{states}]}",
    knows=lambda value: isinstance(value, dict) and value.keys() >= {"devices", "benchmarks"},
    read=read,
)
