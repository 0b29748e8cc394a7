"""Store of records: one JSON file per attempt, which is either whole or absent.

Layout under the folder of one matrix, ``<results>/<matrix name>``::

    records/<cell id>.<attempt>.json    one attempt at one cell, never changed once written
    traces/<cell id>.<attempt>.json.gz  the attempt's telemetry, if there is any
    runs/<run id>.json                  one call of ``kernel-matrix run``, rewritten as it proceeds
"""

from __future__ import annotations

import json
import re
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from kernel_matrix.errors import StoreError
from kernel_matrix.inside.atomic_write import publish_file, replace_file, sync_folder
from kernel_matrix.json_schemas import is_valid
from kernel_matrix.model.enums import Dtype, Fault, Status
from kernel_matrix.results.reading import (
    Document,
    RecordRefusedError,
    Rejection,
    check_consistency,
    explain,
    parse,
    read_record,
    try_record,
)
from kernel_matrix.results.record import Record, record_from_json, record_to_json
from kernel_matrix.results.run_info import RunInfo, run_to_json
from kernel_matrix.results.trace import TelemetryTrace, check_trace, pack, trace_name, trace_to_json

_NEEDED = re.compile(rb'"needed_memory_bytes": ?([0-9]{1,19})')


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptSummary:
    """Fields of an attempt that decide whether its cell runs again."""

    cell_id: str
    attempt: int
    status: Status
    fault: Fault
    engine: str
    image_id: str | None
    measurement_version: str
    driver: str | None
    gpu_uuid: str | None
    """Device; ``None`` for a cell that was only compiled."""


class RecordStore:
    """Records and runs of one matrix; safe to use from several threads and processes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.records = root / "records"
        self.traces = root / "traces"
        self.runs = root / "runs"
        self._lock = threading.Lock()

    def save(self, record: Record, trace: TelemetryTrace | None = None) -> Path:
        """Write ``record`` atomically and durably: its file is whole or absent, also after a power cut.

        Args:
            record: The record.
            trace: Its telemetry; required if the record names a trace, else forbidden. It is written first, so that no
                record names a missing trace.

        Returns:
            The record's file.

        Raises:
            StoreError: Either breaks its schema, exists already, or cannot be written.
        """
        data = _record_bytes(record, traced=trace is not None)
        path = self.records / f"{record.stem}.json"
        with self._trace_written(record, trace):
            _publish(path, data)
        with self._lock:
            self._last[record.cell_id] = max(record.attempt, self._last[record.cell_id])
        return path

    @contextmanager
    def _trace_written(self, record: Record, trace: TelemetryTrace | None) -> Iterator[None]:
        """Write ``trace`` before the context writes its record, and remove it again if that fails."""
        if trace is None:
            yield
            return
        path = self.traces / trace_name(record.stem)
        _publish(path, pack(_trace_bytes(record, trace)))
        try:
            yield
        except BaseException:
            path.unlink(missing_ok=True)
            raise

    def save_run(self, info: RunInfo) -> Path:
        """Write ``info``, replacing the earlier file of this run.

        Returns:
            The file.

        Raises:
            StoreError: It breaks its schema or cannot be written.
        """
        return self.save_run_document(run_to_json(info))

    def save_run_document(self, document: Document) -> Path:
        """Write a run's JSON object as :meth:`save_run` does."""
        run_id = document["run_id"]
        try:
            data = serialise("run", document)
        except (RecordRefusedError, ValueError) as error:
            raise _cannot_be_written(f"run {run_id}", error) from None
        path = self.runs / f"{run_id}.json"
        replace_document(path, data)
        return path

    def load(self, path: Path) -> Record:
        """Return the record in ``path`` after all checks.

        Raises:
            StoreError: It is not a valid record; the message gives the reason.
        """
        try:
            return record_from_json(read_record(path))
        except (RecordRefusedError, ValueError) as error:
            raise StoreError(f"{path}: {error}", next_step="Move the file away, or run its cell again.") from None

    def attempts(self, on_bad: Callable[[Rejection], None] | None = None) -> Mapping[str, list[AttemptSummary]]:
        """Return the attempts at each cell in order, by cell id. Files that ``merge`` would reject are left out.

        Args:
            on_bad: Callback for each rejected file.
        """
        found: dict[str, list[AttemptSummary]] = defaultdict(list)
        for path in sorted(self.records.glob("*.json")):
            read = try_record(path)
            if not isinstance(read, Rejection):
                found[read["cell_id"]].append(_summary(read))
            elif on_bad is not None:
                on_bad(read)
        for summaries in found.values():
            summaries.sort(key=lambda s: s.attempt)
        return dict(found)

    def footprints(self, least: float) -> dict[tuple[str, str, Dtype], int]:
        """Return the device memory that workloads need by the records; nothing if no need is above ``least`` bytes.

        Returns:
            (Digest of the problem, workload, dtype) → bytes; the lowest of what was measured.
        """
        needs = {path: _needs(path) for path in sorted(self.records.glob("*.json"))}
        if not any(need > least for found_there in needs.values() for need in found_there):
            return {}  # parsing all records takes far longer than reading them
        found: dict[tuple[str, str, Dtype], int] = {}
        for path in (path for path, found_there in needs.items() if found_there):
            read = try_record(path)
            if isinstance(read, Rejection):
                continue
            cell = read["cell"]
            for workload in (one for session in read["sessions"] for one in session["workloads"]):
                needed = workload.get("needed_memory_bytes")
                if needed is not None:
                    key = cell["problem_sha256"], workload["name"], Dtype(cell["dtype"])
                    found[key] = min(needed, found.get(key, needed))
        return found

    def next_attempt(self, cell_id: str) -> int:
        """Return the number of the next attempt at ``cell_id``; the first is 1.

        Unreadable files count too, and so do traces of a killed writer that have no record.
        """
        with self._lock:
            return self._last[cell_id] + 1

    @cached_property
    def _last(self) -> defaultdict[str, int]:
        """Cell id → highest attempt on disk; listed once, because one listing per cell would take quadratic time."""
        last: defaultdict[str, int] = defaultdict(int)
        for path in (*self.records.glob("*.json"), *self.traces.glob("*.json.gz")):
            cell_id, _, attempt = path.name.partition(".json")[0].rpartition(".")
            if attempt.isdecimal():
                last[cell_id] = max(last[cell_id], int(attempt))
        return last


def _needs(path: Path) -> list[int]:
    """Return the needs of memory in a record's text, which is not checked; empty if it cannot be read."""
    with suppress(OSError):
        return [int(number) for number in _NEEDED.findall(path.read_bytes())]
    return []


def _record_bytes(record: Record, *, traced: bool) -> bytes:
    """Return the content of the file of ``record``.

    Raises:
        StoreError: The record is invalid, or does not name the trace it comes with.
    """
    document = record_to_json(record)
    try:
        data = serialise("record", document)
        check_consistency(document)
        _check_traced(record, traced=traced)
    except (RecordRefusedError, ValueError) as error:
        raise _cannot_be_written(f"record {record.stem}", error) from None
    return data


def _check_traced(record: Record, *, traced: bool) -> None:
    named = record.host.telemetry is not None and record.host.telemetry.trace is not None
    if named is not traced:
        raise ValueError("it names a trace and has none" if named else "it does not name the trace it comes with")


def _trace_bytes(record: Record, trace: TelemetryTrace) -> bytes:
    """Return the content of the trace file of ``record``, before compression.

    Raises:
        StoreError: The trace is invalid.
    """
    document = trace_to_json(trace, run_id=record.run_id, cell_id=record.cell_id, attempt=record.attempt)
    try:
        data = serialise("trace", document)
        check_trace(document)
    except (RecordRefusedError, ValueError) as error:
        raise _cannot_be_written(f"the trace of record {record.stem}", error) from None
    return data


def serialise(schema: str, document: Document) -> bytes:
    """Return ``document`` as strict JSON in UTF-8, checked against its schema.

    Raises:
        ValueError: It is not strict JSON or breaks its schema; the message says where.
    """
    text = json.dumps(document, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    # Candidates choose some of the text. Replace half a surrogate pair rather than lose the record.
    data = f"{text}\n".encode("utf-8", errors="replace")
    written = parse(data)
    if not is_valid(schema, written):
        raise ValueError(explain(schema, written, size=len(data)))
    return data


def _cannot_be_written(what: str, error: Exception) -> StoreError:
    return StoreError(
        f"{what} cannot be written: {error}",
        next_step="This is a defect of kernel-matrix, not of the candidate: please report it with this message.",
    )


def replace_document(path: Path, data: str | bytes) -> None:
    """Replace the content of ``path``, which need not exist, so that it survives a power cut.

    Raises:
        StoreError: It cannot be written; what was there before stays.
    """
    with _writing(path):
        replace_file(path, data)


def _publish(path: Path, data: bytes) -> None:
    with _writing(path):
        try:
            publish_file(path, data)
        except FileExistsError:
            raise StoreError(
                f"{path} exists already", next_step="Another run works on the same cells: let it end, then run again."
            ) from None


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Make the folder of ``path``, which is written in the context, and bring the file's name to disk."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
        with suppress(OSError):  # some network file systems cannot
            sync_folder(path.parent)
    except OSError as error:
        raise StoreError(
            f"{path} cannot be written: {error.strerror}",
            next_step=f"Make room or give write access in {path.parent}, then run again: no other file is touched.",
        ) from error


def _summary(document: Document) -> AttemptSummary:
    host, outcome = document["host"], document["outcome"]
    return AttemptSummary(
        cell_id=document["cell_id"],
        attempt=document["attempt"],
        status=Status(outcome["status"]),
        fault=Fault(outcome["fault"]),
        engine=host["engine"],
        image_id=host["image"] and host["image"]["id"],
        measurement_version=host["measurement_version"],
        driver=host["device"].get("driver"),
        gpu_uuid=host["device"].get("uuid"),
    )
