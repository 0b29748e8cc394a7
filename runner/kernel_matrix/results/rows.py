"""Rows of the tables, from one checked record document.

They are made from documents, not from :class:`~kernel_matrix.results.record.Record` objects, because a merge reads
hundreds of thousands.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from functools import lru_cache
from statistics import fmean, median
from typing import Any

from kernel_matrix.measure.bus_bandwidth import bus_factor
from kernel_matrix.measure.drift import machine_drift
from kernel_matrix.measure.energy import energy_ratio, joules_per_call
from kernel_matrix.measure.grade import spread_within
from kernel_matrix.measure.roofline import Work, roofline
from kernel_matrix.measure.timed import CANDIDATE, EAGER, WorkloadTimes
from kernel_matrix.measure.verdict import SpeedupVerdict
from kernel_matrix.model.enums import CollectiveKind, Fault, Role, Status
from kernel_matrix.model.instants import parse_instant
from kernel_matrix.model.messages import INTERPRETED, SessionReport, WorkloadReport
from kernel_matrix.results.derived_columns import REGIMES, RIVALS
from kernel_matrix.results.described_columns import Row, RowReader, columns_of
from kernel_matrix.results.descriptions import CAUSES
from kernel_matrix.results.judged import Sessions, WorkloadJudgement, anchors_of, judge
from kernel_matrix.results.kernel_rows import build_columns, traced_columns
from kernel_matrix.results.labels import labels_of_row
from kernel_matrix.results.reading import Document
from kernel_matrix.results.record import CellKey, HostRecord, Outcome, Record
from kernel_matrix.results.run_info import RunInfo

_HOST_ID = json.JSONEncoder(sort_keys=True, ensure_ascii=False).encode
"""Encoder that must never change: it determines the host ids in existing tables."""

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
"""Contestant's prefix of column names → contestant."""


def host_row(record: Document) -> Row:
    """Return the row of ``hosts`` for the host of ``record``."""
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
    """Return the id of a host, computed from its values so that merges of different folders agree."""
    return hashlib.sha256(_HOST_ID(values).encode()).hexdigest()[:16]


def cell_rows(record: Document, times: Sessions, *, key: int, host: Row, run: Document | None) -> Iterator[Row]:
    """Yield the rows of ``cells``: one per session and workload, or one if there is none.

    A row leaves out columns without a value; they are null in the table.

    Args:
        record: A checked record.
        times: Its times, from :func:`~kernel_matrix.results.judged.times_of`.
        key: The record's number within the tables.
        host: The row of its host.
        run: The run that made it, if its file was found.
    """
    about = record["host"]
    common = {"record": key, "host_id": host["host_id"], **_read_record(record), **_read_cell(record["cell"])}
    common |= _read_outcome(record["outcome"]) | _read_circumstances(about) | _device(about, record["cell"]["dtype"])
    common |= build_columns(about.get("build")) | {"findings": [found["rule"] for found in about.get("findings", ())]}
    common["specialised"] = _specialised(record)
    if run is not None:
        common |= _read_run(run)
    judged = judge(record, times)
    of_workloads = {name: _judgement(found) for name, found in judged.items()}
    for session in record["sessions"] or (None,):
        inside = common
        if session:
            inside = common | _read_session(session) | _anchors(session) | traced_columns(session.get("kernels", ()))
        for workload in (session and session["workloads"]) or (None,):
            if session and workload:
                name = workload["name"]
                seen = _workload(workload, times[session["session"], name], inside)
                if name in judged:
                    seen |= of_workloads[name] | _alone(judged[name].alone.get(session["session"]))
                yield {**inside, **seen, "labels": list(labels_of_row(session, workload))}
            else:
                yield inside


def _specialised(record: Document) -> bool | None:
    """Return whether the attempt failed in a held-out workload by the candidate's fault; None if there is none."""
    if not record["cell"].get("held_out"):
        return None
    outcome = record["outcome"]
    return outcome["fault"] == Fault.CANDIDATE.value and bool(outcome["evidence"].get("held_out"))


def _device(host: Mapping[str, Any], dtype: str) -> Row:
    """Return the device's peak rate in ``dtype``, and its telemetry over the timed blocks."""
    peaks = (host.get("peak") or {}).get("flops_per_s", {})
    spread = (host.get("telemetry") or {}).get("spread", {})
    medians = {name: spread[name]["median"] for name in ("sm_clock_mhz", "mem_clock_mhz", "power_w") if name in spread}
    hottest = spread["temperature_c"]["high"] if "temperature_c" in spread else None
    return {"peak_flops_per_s": peaks.get(dtype), "temperature_max_c": hottest, **medians}


def _anchors(session: Mapping[str, Any]) -> Row:
    """Return the times of the judge's own kernels, and their drift from start to end of the session."""
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
        **_discarded(workload),
        **_times(times),
    }
    # No speed is computed for a workload that did not pass, or for interpreted kernels.
    if workload["status"] == Status.PASSED.value and INTERPRETED not in inside["labels"]:
        row |= _speedups(times) | _rates(times.time_ns(CANDIDATE), workload, inside) | _energy(workload)
    return row


def _discarded(workload: Mapping[str, Any]) -> Row:
    """Return the number of samples that do not count, single calls and batches, in total and by cause."""
    causes = [cause for block in workload["blocks"] for _index, cause in block["discarded"]]
    for block in workload.get("batches", ()):
        causes += [block["discarded"]] * len(block["calls"]) if block.get("discarded") else []
    by_cause = {f"discarded_{word}": sum(cause.startswith(word) for cause in causes) for word in CAUSES}
    return {"discarded_samples": len(causes), **by_cause}


def _times(times: WorkloadTimes) -> Row:
    """Return medians per contestant and regime; columns without a regime in their name are cold."""
    row: Row = {}
    for side, contestant in _SIDES.items():
        device, wall = times.device_ns(contestant), times.wall_ns(contestant)
        row[f"{side}_samples"] = len(device)
        row[f"{side}_median_ns"] = times.time_ns(contestant)
        row[f"{side}_claimed_ns"] = times.claimed_ns(contestant)
        row[f"{side}_wall_median_ns"] = median(wall) if wall else None
        batches = times.batches(contestant)
        row[f"{side}_batch_ns"] = batches.estimate if batches else None
        row |= {f"{regime}_{side}_median_ns": times.claimed_ns(contestant, regime) for regime in REGIMES}
    for column, rival in RIVALS.items():
        row[f"{column}_median_ns"] = times.time_ns(rival)
    row["speedup_limit"] = times.speedup_limit()
    row["spread_within"] = spread_within(times.samples_ns(CANDIDATE))
    row["baseline_spread_within"] = spread_within(times.samples_ns(EAGER))
    return row


def _speedups(times: WorkloadTimes) -> Row:
    over_rivals = {f"speedup_over_{column}": times.speedup(rival) for column, rival in RIVALS.items()}
    return {"speedup": times.speedup(), **over_rivals}


def _rates(median_ns: float | None, workload: Mapping[str, Any], inside: Row) -> Row:
    """Return achieved rates and their shares of the peaks.

    Quantised arithmetic has no share of a peak: it runs at the rate of narrower numbers than the cell's dtype, and
    which numbers is the candidate's choice.
    """
    if not median_ns:
        return {}
    quantised = bool(workload.get("traits", {}).get("quality"))
    collective = workload.get("collective") or {}
    size = collective.get("bytes")
    over_link = size * bus_factor(CollectiveKind(collective["kind"]), inside["ranks"]) if size else None
    found = roofline(
        median_ns,
        Work(flops=workload["flops"], bytes=workload["bytes"], link_bytes=over_link),
        Work(
            flops=None if quantised else inside["peak_flops_per_s"],
            bytes=inside.get("peak_bytes_per_s"),
            link_bytes=inside.get("link_bytes_per_s"),
        ),
    )
    return {
        "flops_per_s": found.flops_per_s,
        "bytes_per_s": found.bytes_per_s,
        "flops_share_of_peak": found.mfu,
        "bytes_share_of_peak": found.bandwidth_utilisation,
        "share_of_peak": found.utilisation,
        "intensity": found.intensity,
        "bound": found.bound,
        "algorithm_bytes_per_s": size / median_ns * 1e9 if size else None,
        "bus_bytes_per_s": found.link_bytes_per_s,
        "link_share_of_peak": found.link_utilisation,
    }


def _energy(workload: Mapping[str, Any]) -> Row:
    """Return the energy of a call of both sides, by the driver's counter."""
    if not workload.get("energies"):
        return {}
    ours, theirs = (joules_per_call(workload, contestant) for contestant in _SIDES.values())
    ratio = energy_ratio(workload)
    row: Row = {
        "baseline_joules_per_call": theirs.estimate if theirs else None,
        "energy_ratio": ratio.estimate if ratio else None,
    }
    if ours is not None:
        row |= {
            "candidate_joules_per_call": ours.estimate,
            "candidate_joules_low": ours.low,
            "candidate_joules_high": ours.high,
            "flops_per_joule": workload["flops"] / ours.estimate if workload["flops"] and ours.estimate else None,
        }
    return row


def _alone(found: SpeedupVerdict | None) -> Row:
    """Return the verdict of one session."""
    return {"session_verdict": found.verdict.value, "session_verdict_reason": found.reason.value} if found else {}


def _judgement(found: WorkloadJudgement) -> Row:
    """Return the columns about all sessions together, which are the same in each of their rows."""
    row: Row = {
        "grade": found.graded.grade.value,
        "grade_reason": found.graded.reason,
        "spread_between": found.spread_between,
        "machine_drift": found.machine_drift,
        "code_drift": found.code_drift,
    }
    if found.energy is not None:
        row["energy_ratio_mean"] = found.energy.estimate
        if math.isfinite(found.energy.high):
            row |= {"energy_ratio_low": found.energy.low, "energy_ratio_high": found.energy.high}
    compared = found.comparison
    if compared is None:
        return row
    row |= {
        "verdict": compared.verdict.value,
        "verdict_reason": compared.reason.value,
        "verdict_figure": compared.figure if math.isfinite(compared.figure) else None,
        "verdict_chance": compared.chance,
        "verdict_speedup": compared.estimate,
        "verdict_sessions": compared.sessions,
    }
    # One session has no interval; the verdict's would be 0 to infinity.
    return row if compared.sessions == 1 else row | {"verdict_low": compared.low, "verdict_high": compared.high}
