"""Store of records: one JSON file per attempt, which is either whole or absent.

Layout under the folder of one matrix, ``<results>/<matrix name>``::

    records/<cell id>.<attempt>.json    one attempt at one cell, never changed once written
    traces/<cell id>.<attempt>.json.gz  the attempt's telemetry, if there is any
    runs/<run id>.json                  one call of ``kernel-matrix run``, rewritten as it proceeds
"""

from __future__ import annotations

import errno
import json
import os
import secrets
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO

from kernel_matrix.errors import StoreError
from kernel_matrix.model.enums import Fault, Status
from kernel_matrix.results.reading import (
    Document,
    RecordRefusedError,
    Rejection,
    check_consistency,
    explain,
    is_valid,
    parse,
    read_record,
    try_record,
)
from kernel_matrix.results.record import Record, record_from_json, record_to_json
from kernel_matrix.results.run_info import RunInfo, run_to_json
from kernel_matrix.results.trace import TelemetryTrace, check_trace, pack, trace_name, trace_to_json

_NO_HARD_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})
_NO_NAMELESS_FILES = _NO_HARD_LINKS | {errno.EISDIR, errno.EINVAL, errno.ENOENT}
"""Also raised by kernels without O_TMPFILE, and where there is no ``/proc``."""


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

        Args:     record: The record.     trace: Its telemetry; required if the record names a trace, else forbidden. It
        is written first, so that no record         names a missing trace.

        Returns:
            The record's file.

        Raises:
            StoreError: Either breaks its schema, exists already, or cannot be written.
        """
        data = _record_bytes(record, traced=trace is not None)
        path = self.records / f"{record.stem}.json"
        with self._trace_written(record, trace):
            _write(path, data, publish=_publish_new)
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
        _write(path, pack(_trace_bytes(record, trace)), publish=_publish_new)
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
        try:
            data = _serialise("run", run_to_json(info))
        except (RecordRefusedError, ValueError) as error:
            raise _cannot_be_written(f"run {info.run_id}", error) from None
        path = self.runs / f"{info.run_id}.json"
        _write(path, data, publish=os.replace)
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


def _record_bytes(record: Record, *, traced: bool) -> bytes:
    """Return the content of the file of ``record``.

    Raises:
        StoreError: The record is invalid, or does not name the trace it comes with.
    """
    document = record_to_json(record)
    try:
        data = _serialise("record", document)
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
        data = _serialise("trace", document)
        check_trace(document)
    except (RecordRefusedError, ValueError) as error:
        raise _cannot_be_written(f"the trace of record {record.stem}", error) from None
    return data


def _serialise(schema: str, document: Document) -> bytes:
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


def _write(path: Path, data: bytes, *, publish: Callable[[Path, Path], Any]) -> None:
    """Write ``data`` to a temporary file, sync it, and let ``publish`` name it; on any failure nothing is left."""
    aside = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            _write_durably(aside, data)
            publish(aside, path)
        finally:
            aside.unlink(missing_ok=True)
        _sync_folder(path.parent)
    except FileExistsError:
        raise StoreError(
            f"{path} exists already", next_step="Another run works on the same cells: let it end, then run again."
        ) from None
    except OSError as error:
        raise StoreError(
            f"{path} cannot be written: {error.strerror}",
            next_step=f"Make room or give write access in {path.parent}, then run again: no other record is touched.",
        ) from error


def _write_durably(path: Path, data: bytes) -> None:
    """Write a new file; if the file system allows it, give it a name only once it is whole.

    A killed runner then leaves no partial file.
    """
    try:
        _write_nameless(path, data)
    except OSError as error:
        if error.errno not in _NO_NAMELESS_FILES:
            raise
        with open(path, "xb") as file:  # noqa: PTH123  # Path.open has no advantage and hides the exclusive mode
            _fill(file, data)


def _write_nameless(path: Path, data: bytes) -> None:
    descriptor = os.open(path.parent, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o666)
    with open(descriptor, "wb") as file:  # noqa: PTH123  # Path.open takes no descriptor
        _fill(file, data)
        # Python calls linkat, and follows the link, only if it is given a descriptor; an absolute path ignores it.
        os.link(f"/proc/self/fd/{descriptor}", path, src_dir_fd=descriptor, follow_symlinks=True)


def _fill(file: BinaryIO, data: bytes) -> None:
    file.write(data)
    file.flush()
    os.fsync(file.fileno())


def _publish_new(aside: Path, path: Path) -> None:
    """Give ``aside`` the name ``path`` unless that exists; a rename would overwrite it silently."""
    try:
        os.link(aside, path)
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        if path.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from None
        aside.rename(path)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with suppress(OSError):  # some network file systems cannot
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


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
    )
