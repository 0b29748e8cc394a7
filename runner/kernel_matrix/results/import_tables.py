"""Tables of imported measurements, with the schema that ``merge`` writes; the same files give the same bytes."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

import polars as pl

from kernel_matrix.measure.timed import CANDIDATE
from kernel_matrix.model.enums import Fault, Role, Stage, Status, fault_of
from kernel_matrix.results.chunk import count_hosts
from kernel_matrix.results.columns import TableRows
from kernel_matrix.results.publishing import METADATA, aside, publish
from kernel_matrix.results.schema import DEVICE, HOSTS, TABLES
from kernel_matrix.sources import UnreadableItem
from kernel_matrix.sources.measurement import UNTIMED, ImportedFile, ImportedMeasurement

_SESSION: Final = 0  # others' results do not name sessions
_ID_DIGITS: Final = 32  # as in cell ids
_HOST_DIGITS: Final = 16  # as in the ids of hosts of our own records
_RUN_DIGITS: Final = 12  # enough to tell imported files apart, and short enough to read
_NO_TIME = datetime.min.replace(tzinfo=timezone.utc)
_ABOUT_HOSTS = tuple(name for name in HOSTS if name not in ("host_id", "records", *DEVICE) and "started_at" not in name)

_STAGES: Final = {
    Status.PASSED: Stage.DONE,
    Status.COMPILE_ERROR: Stage.BUILD,
    Status.INCORRECT_VALUES: Stage.VERIFY,
    Status.INCORRECT_SHAPE: Stage.VERIFY,
    Status.INCORRECT_DTYPE: Stage.VERIFY,
}
"""Status → stage; for all other statuses the files do not name a stage."""

_OUTCOME: Final = ("status", "stage", "fault", "session_status", "session_stage")
"""Columns with one value per record."""

Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _ImportedRows:
    """Rows of one measurement, before its record is known."""

    cell: Row
    host: Row
    samples: Sequence[Mapping[str, Any]]
    status: Status
    """Status of this workload alone."""
    workload: str
    at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedTables:
    """Tables of imported results, and counts of special cases."""

    frames: Mapping[str, pl.DataFrame]
    duplicates: int
    """Files whose content and machine equal those of another file; counted once."""
    contested: int
    """Cells with different content in several files. These become attempts, ordered by time, else by run."""


def build_tables(found: Iterable[ImportedFile], name: str | None) -> ImportedTables:
    """Return the tables of all files, independent of their order and location.

    Args:
        found: Files with their measurements.
        name: Name of the matrix; by default the name of the format.
    """
    ordered = sorted(found, key=lambda one: (one.format, one.version, one.machine, one.path.name, one.sha256))
    rows: list[_ImportedRows] = []
    seen: set[tuple[Any, ...]] = set()
    duplicates = 0
    for file in ordered:
        made = [_rows(one, file, _matrix(file, name)) for one in file.measured]
        what = (file.format, file.sha256, *((one.cell["cell_id"], one.host["host_id"]) for one in made))
        duplicates += what in seen
        if what not in seen:
            rows += made
        seen.add(what)
    cells: dict[tuple[str, str], dict[str, list[_ImportedRows]]] = {}
    for one in rows:
        runs = cells.setdefault((one.cell["cell_id"], one.host["host_id"]), {})
        runs.setdefault(one.cell["run_id"], []).append(one)
    records = [record for runs in cells.values() for record in _attempts(runs.values())]
    return ImportedTables(
        frames=_frames(records), duplicates=duplicates, contested=sum(len(runs) > 1 for runs in cells.values())
    )


def _attempts(runs: Iterable[Sequence[_ImportedRows]]) -> Iterator[list[_ImportedRows]]:
    """Yield the records of one cell on one host, at least one per run.

    The last record of a run has all of its workloads, because analyses take a cell's last attempt. If a run has a
    workload several times, only the latest is in the last record. Rows that say nothing about the candidate, such as
    skipped states, are in the last record only if the run has no other rows.
    """
    attempt = 0
    for run in sorted(runs, key=lambda run: (_latest(run) or _NO_TIME, run[0].cell["run_id"])):
        at = _latest(run)
        for record in _layers(run):
            attempt += 1
            status = _combine_statuses([one.status for one in record])
            blamed = next(one for one in record if one.status is status)
            shared = {name: blamed.cell[name] for name in (*_OUTCOME, "message")}
            for one in record:
                one.cell.update(shared, attempt=attempt, started_at=at)
            yield record


def _layers(run: Sequence[_ImportedRows]) -> list[list[_ImportedRows]]:
    """Return the rows of a run split into records without repeated workloads, the most complete record last."""
    counted = [one for one in run if one.status is Status.PASSED or fault_of(one.status) is Fault.CANDIDATE]
    others = [one for one in run if one.status is not Status.PASSED and fault_of(one.status) is not Fault.CANDIDATE]
    return [*_split_layers(others), *_split_layers(counted)]


def _split_layers(rows: Sequence[_ImportedRows]) -> list[list[_ImportedRows]]:
    """Return ``rows`` in layers: the last has the latest row of each workload, the one before it the second latest."""
    layers: list[list[tuple[int, _ImportedRows]]] = []
    again: Counter[str] = Counter()
    # Rows without a time follow file order; each layer keeps that order.
    for place, one in sorted(enumerate(rows), key=lambda pair: (pair[1].at or _NO_TIME, pair[0]), reverse=True):
        depth = again[one.workload]
        again[one.workload] += 1
        if depth == len(layers):
            layers.append([])
        layers[depth].append((place, one))
    return [[one for _place, one in sorted(layer, key=itemgetter(0))] for layer in reversed(layers)]


def _combine_statuses(statuses: Sequence[Status]) -> Status:
    """Return the first status that is not ``PASSED``: a candidate that fails on one workload fails."""
    return next((status for status in statuses if status is not Status.PASSED), Status.PASSED)


def _latest(run: Sequence[_ImportedRows]) -> datetime | None:
    return max((one.at for one in run if one.at is not None), default=None)


def _matrix(file: ImportedFile, name: str | None) -> str:
    """Return the name of the matrix, which differs for two versions of a problem set."""
    matrix = name or file.format
    suffix = f"-{file.version}" if file.version else ""
    return matrix if matrix.endswith(suffix) else f"{matrix}{suffix}"


def _rows(one: ImportedMeasurement, file: ImportedFile, matrix: str) -> _ImportedRows:
    """Return the rows of one measurement, as if it were the only workload of its record."""
    host: Row = {**dict.fromkeys((*_ABOUT_HOSTS, *DEVICE)), **one.host}
    host["host_id"] = _digest(list(host.items()))[:_HOST_DIGITS]
    stage = _STAGES.get(one.status)
    cell: Row = {
        "run_id": f"import:{file.format}:{file.sha256[:_RUN_DIGITS]}",
        "matrix": matrix,
        "source": file.format,
        "gpu": one.gpu,
        "problem": one.problem,
        "problem_sha256": _digest([matrix, one.problem]),
        "workload": one.workload,
        "candidate": one.candidate,
        **{name: host[name] for name in ("host_id", "hostname", *DEVICE)},
        "status": one.status.value,
        "fault": fault_of(one.status).value,
        "stage": stage and stage.value,
        "message": one.message,
        "session": _SESSION,
        "session_status": one.status.value,
        "session_stage": stage and stage.value,
        "workload_status": one.status.value,
        "labels": one.labels,
        "warnings": one.warnings,
        **one.columns,
    }
    candidate, baseline = cell.get("candidate_median_ns"), cell.get("baseline_median_ns")
    if one.status is Status.PASSED:
        if candidate is None:
            cell["labels"] += (UNTIMED,)
        elif candidate and baseline:
            cell["speedup"] = baseline / candidate
    asked = ("matrix", "source", "gpu", "dtype", "problem", "candidate")
    toolchain = [cell["toolchain"]] if cell.get("toolchain") else []
    cell["cell_id"] = _digest([*(cell.get(key) for key in asked), *toolchain])[:_ID_DIGITS]
    return _ImportedRows(
        cell=cell,
        host={**host, "records": 1},
        samples=one.samples,
        status=one.status,
        workload=one.workload,
        at=cell.get("started_at"),
    )


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, separators=(",", ":")).encode()).hexdigest()


def _frames(records: Iterable[Sequence[_ImportedRows]]) -> dict[str, pl.DataFrame]:
    tables = {name: TableRows(schema) for name, schema in TABLES.items()}
    for number, record in enumerate(records):
        at = record[0].cell["started_at"]
        tables["hosts"].append({**record[0].host, "first_started_at": at, "last_started_at": at})
        for one in record:
            tables["cells"].append({"record": number, **one.cell})
            where = {"record": number, "session": _SESSION, "workload": one.workload, "block": 0}
            whose = {"role": Role.CANDIDATE.value, "contestant": CANDIDATE}
            for index, sample in enumerate(one.samples):
                tables["samples"].append({**where, "index": index, **whose, **sample})
    frames = {name: table.frame() for name, table in tables.items()}
    return frames | {"hosts": count_hosts(frames["hosts"])}


def write(frames: Mapping[str, pl.DataFrame], refused: Sequence[UnreadableItem], out: Path) -> dict[str, Path]:
    """Write the tables and the list of refused items into ``out``; write either all of them or none.

    Returns:
        Table → file.

    Raises:
        StoreError: They cannot be written; older tables stay.
    """
    with aside(out, untouched="older tables") as folder:
        files = {name: folder / f"{name}.parquet" for name in frames}
        for name, frame in frames.items():
            frame.write_parquet(files[name], compression="zstd", metadata=METADATA)
        rows = (
            {"path": str(one.path), "reason": "unreadable", "line": one.line, "detail": one.reason} for one in refused
        )
        return publish(files, rows, out)
