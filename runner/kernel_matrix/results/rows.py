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

from kernel_matrix.measure.drift import machine_drift
from kernel_matrix.measure.grade import spread_within
from kernel_matrix.measure.roofline import Work, roofline
from kernel_matrix.measure.timed import CANDIDATE, EAGER, WorkloadTimes
from kernel_matrix.model.enums import Role, Status
from kernel_matrix.model.instants import parse_instant
from kernel_matrix.model.messages import INTERPRETED, SessionReport, WorkloadReport
from kernel_matrix.results.derived_columns import REGIMES, RIVALS
from kernel_matrix.results.described_columns import Row, RowReader, columns_of
from kernel_matrix.results.descriptions import CAUSES
from kernel_matrix.results.judged import WorkloadJudgement, anchors_of, judge, times_of
from kernel_matrix.results.kernel_rows import build_columns, seen_columns
from kernel_matrix.results.reading import Document
from kernel_matrix.results.record import CellKey, HostRecord, Outcome, Record
from kernel_matrix.results.run_info import RunInfo

_HOST_ID = json.JSONEncoder(sort_keys=True, ensure_ascii=False).encode
"""Fixed for good: it decides the ids of hosts in tables that are there already."""

_HOST_COLUMNS = tuple(column.name for column in columns_of(HostRecord, table="hosts"))
_read_host = RowReader(HostRecord, table="hosts")
_read_record = RowReader(Record)
_read_run = RowReader(RunInfo)
_read_cell = RowReader(CellKey)
_read_outcome = RowReader(Outcome)
_read_circumstances = RowReader(HostRecord)
_read_session = RowReader(SessionReport)
_read_workload = RowReader(WorkloadReport)
_SIDES = {Role.CANDIDATE.value: CANDIDATE, Role.BASELINE.value: EAGER}
"""What columns call a side → contestant."""


def host_row(record: Document) -> Row:
    """The row of ``hosts`` that ``record`` counts for."""
    row = _read_host(record["host"])
    started_at = parse_instant(record["host"]["started_at"])
    values = tuple(row.get(name) for name in _HOST_COLUMNS)
    return {
        "host_id": _host_id(values),
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
    about = record["host"]
    common = {"record": key, "host_id": host["host_id"], **_read_record(record), **_read_cell(record["cell"])}
    common |= _read_outcome(record["outcome"]) | _read_circumstances(about) | _device(about, record["cell"]["dtype"])
    common |= build_columns(about.get("build")) | {"findings": [found["rule"] for found in about.get("findings", ())]}
    if run is not None:
        common |= _read_run(run)
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


def _device(host: Mapping[str, Any], dtype: str) -> Row:
    """The device's peak rate in ``dtype``, and its telemetry over the timed blocks."""
    peaks = (host.get("peak") or {}).get("flops_per_s", {})
    spread = (host.get("telemetry") or {}).get("spread", {})
    medians = {name: spread[name]["median"] for name in ("sm_clock_mhz", "mem_clock_mhz", "power_w") if name in spread}
    hottest = spread["temperature_c"]["high"] if "temperature_c" in spread else None
    return {"peak_flops_per_s": peaks.get(dtype), "temperature_max_c": hottest, **medians}


def _session(session: Mapping[str, Any]) -> Row:
    return _read_session(session) | _anchors(session) | seen_columns(session.get("kernels", ()))


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
        **_read_workload(workload),
        "trials": len(trials),
        "trials_passed": sum(t["passed"] for t in trials),
        "worst_error_ratio": max(ratios, default=None),
        **_discarded(workload["blocks"]),
        **_times(times),
    }
    # Nothing follows from a workload that did not pass, or from kernels that were interpreted.
    if workload["status"] == Status.PASSED.value and INTERPRETED not in inside["labels"]:
        row |= _speedups(times) | _rates(times.median_ns(CANDIDATE), workload, inside)
    return row


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
        Work(flops=None if quantised else inside["peak_flops_per_s"], bytes=inside.get("peak_bytes_per_s")),
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
