"""From one checked record document to rows of the tables.

Documents, not :class:`~kernel_matrix.results.record.Record` objects: a merge reads hundreds of thousands.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from statistics import fmean, median
from typing import Any

import orjson

from kernel_matrix.measure.drift import machine_drift
from kernel_matrix.measure.grade import spread_within
from kernel_matrix.measure.roofline import Work, roofline
from kernel_matrix.measure.timed import CANDIDATE, EAGER, WorkloadTimes
from kernel_matrix.model.enums import Role, Status
from kernel_matrix.model.instants import parse_instant
from kernel_matrix.model.messages import INTERPRETED
from kernel_matrix.results.descriptions import CAUSES
from kernel_matrix.results.judged import WorkloadJudgement, anchors_of, judge, times_of
from kernel_matrix.results.kernel_rows import build_columns, seen_columns
from kernel_matrix.results.reading import Document
from kernel_matrix.results.schema import (
    CONFINEMENTS,
    INSIDE_PHASES,
    PHASES,
    QUALITIES,
    REGIMES,
    RIVALS,
    TRAITS,
    VERSIONS,
)

Row = dict[str, Any]

_HOST_ID = json.JSONEncoder(sort_keys=True, ensure_ascii=False).encode
"""Fixed for good: it decides the ids of hosts in tables that are there already."""

_DEVICE = {
    "gpu_uuid": "uuid",
    "gpu_name": "name",
    "compute_capability": "compute_capability",
    "memory_bytes": "memory_bytes",
    "driver": "driver",
    "cuda_driver": "cuda_driver",
}
"""Column → key of the host half's ``device``."""
_HOST = ("hostname", "machine", "platform", "cpu", "cores", "engine", "engine_version")
_SHARED_WITH_HOSTS = ("host_id", "hostname", "engine", "engine_version", *_DEVICE)
_IMAGE = ("reference", "id", "repo_digest", "store", "state")
_CELL = (
    *("gpu", "toolchain", "dtype", "problem", "problem_sha256", "category", "level", "source"),
    *("candidate", "candidate_sha256", "language", "tier", "expect"),
)
_WORKLOAD = (
    *("flops", "bytes", "reference_dtype", "inputs"),
    *("warmup_calls", "flush_bytes", "checked_calls", "wall_overhead_ns"),
)
_TWO_CLOCKS = ("unexplained_ns", "handover_ns", "floor_ns", "floor_reason", "low_resolution")
_SIDES = {Role.CANDIDATE.value: CANDIDATE, Role.BASELINE.value: EAGER}
"""What columns call a side → contestant."""


def _json(values: Mapping[str, Any]) -> str:
    """``values`` as JSON, sorted by key."""
    return orjson.dumps(values, option=orjson.OPT_SORT_KEYS).decode()


def host_row(record: Document) -> Row:
    """The row of ``hosts`` that ``record`` counts for."""
    host = record["host"]
    row = {name: host[name] for name in _HOST}
    row |= {column: host["device"].get(key) for column, key in _DEVICE.items()}
    started_at = parse_instant(host["started_at"])
    return {
        "host_id": _host_id(tuple(row.values())),
        **row,
        "records": 1,
        "first_started_at": started_at,
        "last_started_at": started_at,
    }


@lru_cache
def _host_id(values: tuple[Any, ...]) -> str:
    """Made from what the row says, so that merges of different folders agree on it."""
    return hashlib.sha256(_HOST_ID(values).encode()).hexdigest()[:16]


def cell_rows(record: Document, *, key: int, host: Row, run: Document | None) -> Iterator[Row]:
    """Rows of ``cells``: one per session and workload, or one where there is none. An absent column is null.

    :param key: the record's number within the tables.
    :param host: its row of ``hosts``.
    :param run: the run it belongs to, where its file was found.
    """
    common = {"record": key, **_identity(record, run), **_cell(record["cell"]), **_outcome(record["outcome"])}
    common |= {name: host[name] for name in _SHARED_WITH_HOSTS} | _circumstances(record["host"])
    common |= _device_state(record["host"]) | _peak(record["host"], record["cell"]["dtype"])
    common |= build_columns(record["host"].get("build"))
    times = times_of(record)
    judgements = {name: _judgement(found) for name, found in judge(record, times).items()}
    for session in record["sessions"] or (None,):
        inside = {**common, **_session(session)} if session else common
        for workload in (session and session["workloads"]) or (None,):
            if session and workload:
                name = workload["name"]
                seen = _workload(workload, times[session["session"], name], inside)
                yield {**inside, **seen, **judgements.get(name, {})}
            else:
                yield inside


def _identity(record: Document, run: Document | None) -> Row:
    return {
        "run_id": record["run_id"],
        "cell_id": record["cell_id"],
        "attempt": record["attempt"],
        "matrix": run and run["matrix"],
        "run_started_at": run and parse_instant(run["started_at"]),
    }


def _cell(cell: Mapping[str, Any]) -> Row:
    row = {name: cell[name] for name in _CELL}
    return row | {f"origin_{name}": value for name, value in cell["origin"].items()}


def _outcome(outcome: Mapping[str, Any]) -> Row:
    return {
        "status": outcome["status"],
        "stage": outcome["stage"],
        "fault": outcome["fault"],
        "message": outcome["evidence"]["message"],
    }


def _circumstances(host: Mapping[str, Any]) -> Row:
    confined, phases, image = host["isolation"].get(Role.CANDIDATE.value) or {}, host["phases_s"], host["image"] or {}
    return {
        "version": host["version"],
        "measurement_version": host["measurement_version"],
        **{f"image_{name}": image.get(name) for name in _IMAGE},
        "exclusive": host["exclusive"],
        "foreign_pids": len(host["foreign_pids"]),
        "clock_policy": host["clock_policy"],
        "clock_state": host["clock_state"],
        "clock_reason": host["clock_reason"],
        **{f"isolation_{name}": confined.get(name) for name in CONFINEMENTS},
        "started_at": parse_instant(host["started_at"]),
        "ended_at": parse_instant(host["ended_at"]),
        **{f"{name}_s": phases.get(name) for name in PHASES},
        "warnings": host["warnings"],
        "findings": [finding["rule"] for finding in host.get("findings", ())],
    }


def _device_state(host: Mapping[str, Any]) -> Row:
    """What was done to the device, seen of it, and how it was left; nulls in records from before these were kept."""
    clocks, telemetry, health = host.get("clocks") or {}, host.get("telemetry"), host.get("health") or {}
    row = {
        "exclusive_reason": host.get("exclusive_reason"),
        "clock_requested": clocks.get("requested"),
        "clock_set_mhz": clocks.get("set_sm_mhz"),
        "clock_driver_mhz": clocks.get("driver_sm_mhz"),
        "clock_kernel_mhz": clocks.get("kernel_sm_mhz"),
        "clock_reset": clocks.get("reset"),
        "health_probe": health.get("probe"),
        "quarantined": health.get("quarantined"),
    }
    return row if telemetry is None else row | _telemetry(telemetry)


def _telemetry(telemetry: Mapping[str, Any]) -> Row:
    spread = telemetry["spread"]
    medians = {name: spread[name]["median"] for name in ("sm_clock_mhz", "mem_clock_mhz", "power_w") if name in spread}
    return {
        "telemetry_samples": telemetry["samples"],
        "telemetry_joined": telemetry["joined"],
        **medians,
        "temperature_max_c": spread["temperature_c"]["high"] if "temperature_c" in spread else None,
        "energy_j": telemetry["energy_j"],
    }


def _peak(host: Mapping[str, Any], dtype: str) -> Row:
    """What the device can do at most in ``dtype``."""
    peak = host.get("peak") or {}
    return {
        "peak_source": peak.get("source"),
        "peak_flops_per_s": peak.get("flops_per_s", {}).get(dtype),
        "peak_bytes_per_s": peak.get("bytes_per_s"),
    }


def _session(session: Mapping[str, Any]) -> Row:
    environment, durations = session["environment"], session["durations_s"]
    row = {
        "session": session["session"],
        "session_status": session["status"],
        "session_stage": session["stage"],
        "seed_sha256": session["seed_sha256"],
        "transport": session["transport"],
        "labels": session["labels"],
        **{f"inside_{name}_s": durations.get(name) for name in INSIDE_PHASES},
        **_anchors(session),
        **seen_columns(session.get("kernels", ())),
        "device_healthy": (session.get("health") or {}).get("passed"),
    }
    if environment is None:
        return row
    row |= {name: environment[name] for name in VERSIONS}
    return row | {"settings_json": _json(environment["settings"])}


def _anchors(session: Mapping[str, Any]) -> Row:
    """What the judge's own kernels took, and how far apart both ends of the session are."""
    anchors = anchors_of(session)
    if not anchors:
        return {}
    compute, memory = (fmean(times) for times in zip(*anchors, strict=True))
    return {"anchor_compute_ns": compute, "anchor_memory_ns": memory, "anchor_drift": machine_drift(anchors)}


def _workload(workload: Mapping[str, Any], times: WorkloadTimes, inside: Row) -> Row:
    trials = workload["trials"]
    ratios = [t["error_ratio"] for t in trials if t["error_ratio"] is not None]
    row = {
        "workload": workload["name"],
        "workload_status": workload["status"],
        "values_json": _json(workload["values"]),
        **{name: workload[name] for name in _WORKLOAD},
        "trials": len(trials),
        "trials_passed": sum(t["passed"] for t in trials),
        "worst_error_ratio": max(ratios, default=None),
        **_two_clocks(workload.get("two_clocks")),
        **_traits(workload.get("traits", {})),
        **_discarded(workload["blocks"]),
        **_times(times),
    }
    # Nothing follows from a workload that did not pass, or from kernels that were interpreted.
    if workload["status"] == Status.PASSED.value and INTERPRETED not in inside["labels"]:
        row |= _speedups(times) | _rates(times.median_ns(CANDIDATE), workload, inside)
    return row


def _two_clocks(found: Mapping[str, Any] | None) -> Row:
    if found is None:
        return {}
    return {"wall_resolution_ns": found["resolution_ns"], **{name: found[name] for name in _TWO_CLOCKS}}


def _traits(traits: Mapping[str, Any]) -> Row:
    quality = traits.get("quality", {})
    row = {name: traits.get(name) for name in TRAITS}
    return row | {f"quality_{name}": quality.get(name) for name in QUALITIES}


def _discarded(blocks: Iterable[Mapping[str, Any]]) -> Row:
    """How many samples do not count, and how many of them for which cause."""
    causes = [cause for block in blocks for _index, cause in block["discarded"]]
    by_cause = {f"discarded_{word}": sum(cause.startswith(word) for cause in causes) for word in CAUSES}
    return {"discarded_samples": len(causes), **by_cause}


def _times(times: WorkloadTimes) -> Row:
    """Medians per contestant and regime; what a column does not say otherwise is cold."""
    row: Row = {}
    for side, contestant in _SIDES.items():
        device, wall = times.device_ns(contestant), times.wall_ns(contestant)
        row[f"{side}_samples"] = len(device)
        row[f"{side}_median_ns"] = times.median_ns(contestant)
        row[f"{side}_wall_median_ns"] = median(wall) if wall else None
        row |= {f"{regime}_{side}_median_ns": times.median_ns(contestant, regime) for regime in REGIMES}
    for column, rival in RIVALS.items():
        row[f"{column}_median_ns"] = times.median_ns(rival)
    row["spread_within"] = spread_within(times.device_ns(CANDIDATE))
    return row


def _speedups(times: WorkloadTimes) -> Row:
    over_rivals = {f"speedup_over_{column}": times.speedup(rival) for column, rival in RIVALS.items()}
    return {"speedup": times.speedup(), **over_rivals}


def _rates(median_ns: float | None, workload: Mapping[str, Any], inside: Row) -> Row:
    """Achieved rates, and where they lie under the roof.

    Quantised arithmetic has no share of a peak: it runs at the rate of narrower numbers than the cell's dtype,
    whichever a candidate takes.
    """
    if not median_ns:
        return {}
    quantised = bool(workload.get("traits", {}).get("quality"))
    found = roofline(
        median_ns,
        Work(flops=workload["flops"], bytes=workload["bytes"]),
        Work(flops=None if quantised else inside["peak_flops_per_s"], bytes=inside["peak_bytes_per_s"]),
    )
    return {
        "flops_per_s": found.flops_per_s,
        "bytes_per_s": found.bytes_per_s,
        "flops_share_of_peak": found.mfu,
        "bytes_share_of_peak": found.bandwidth_utilisation,
        "share_of_peak": found.utilisation,
        "intensity": found.intensity,
        "bound": found.bound,
    }


def _judgement(found: WorkloadJudgement) -> Row:
    """What all sessions say together: the same in each of their rows."""
    row: Row = {
        "grade": found.graded.grade.value,
        "grade_reason": found.graded.reason,
        "spread_between": found.spread_between,
        "machine_drift": found.machine_drift,
        "code_drift": found.code_drift,
    }
    compared = found.comparison
    if compared is None:
        return row
    row |= {"verdict": compared.verdict.value, "verdict_speedup": compared.estimate}
    row["verdict_sessions"] = compared.sessions
    # One session has no interval: from 0 to infinity.
    return row if compared.sessions == 1 else row | {"verdict_low": compared.low, "verdict_high": compared.high}
