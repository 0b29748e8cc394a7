"""Take records of other stores into one's own, each once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

from kernel_matrix.errors import StoreError
from kernel_matrix.results.reading import Document, RecordRefusedError, Rejection, read_record, try_record
from kernel_matrix.results.record import Record, record_from_json
from kernel_matrix.results.record_files import read_runs
from kernel_matrix.results.store import RecordStore
from kernel_matrix.results.trace import TelemetryTrace, read_trace_document, trace_name


class AdoptionRefusedError(StoreError):
    """A file of another store, or its trace, is no record; the store is as it was."""


def adopt(store: RecordStore, path: Path) -> Record | None:
    """Copy a record with its trace into ``store``, as the next attempt at its cell.

    Args:
        store: Where to.
        path: Its file in another store, ``<folder>/records/<cell id>.<attempt>.json``. It is checked as a file that
            anybody may have written.

    Returns:
        The record as it is in ``store``; None if it is there already.

    Raises:
        AdoptionRefusedError: It or its trace is refused.
        StoreError: ``store`` cannot be written.
    """
    try:
        document = read_record(path)
        earlier = list(_paths_at(store, document["cell_id"]))
        known = [one for one in map(try_record, earlier) if not isinstance(one, Rejection)]
        if any(_origin(one) == _origin(document) for one in known):
            return None
        record, trace = record_from_json(document), _trace_of(path, document)
    except (RecordRefusedError, ValueError) as error:
        what = f"{path} is refused: {error}"
        raise AdoptionRefusedError(what, next_step="its cell runs again; look at the log beside it") from None
    record = _numbered(record, len(earlier) + 1)
    store.save(record, trace)
    return record


def adopt_run(store: RecordStore, path: Path) -> None:
    """Copy a run's own file into ``store``, unless it is no such file or another run has its name there.

    Raises:
        StoreError: ``store`` cannot be written.
    """
    found, _ = read_runs([str(path)])
    for run_id, run in found.items():
        earlier, _ = read_runs([str(store.runs / f"{run_id}.json")])
        begins = {(one["host"]["machine"], one["started_at"]) for one in (run, *earlier.values())}
        if len(begins) == 1 and [run] != list(earlier.values()):
            store.save_run_document(run)


def _paths_at(store: RecordStore, cell_id: str) -> Iterator[Path]:
    """Yield the paths of all earlier attempts; the folder is not listed, since it may hold a million files."""
    for attempt in count(1):
        path = store.records / f"{cell_id}.{attempt}.json"
        # Another process may have taken some home since the store counted its attempts.
        if attempt >= store.next_attempt(cell_id) and not path.exists():
            return
        yield path


def _origin(document: Document) -> tuple[str, str, str]:
    """Return what two attempts at one cell cannot have in common."""
    return document["run_id"], document["host"]["machine"], document["host"]["started_at"]


def _trace_of(path: Path, document: Document) -> TelemetryTrace | None:
    telemetry = document["host"]["telemetry"]
    if telemetry is None or telemetry["trace"] is None:
        return None
    found = read_trace_document(path.parents[1] / "traces" / trace_name(path.name.removesuffix(".json")))
    return TelemetryTrace(columns=found["columns"], reason_ns=found["reason_ns"])


def _numbered(record: Record, attempt: int) -> Record:
    """Return ``record`` as another attempt, which names its trace anew."""
    record = replace(record, attempt=attempt)
    telemetry = record.host.telemetry
    if telemetry is None or telemetry.trace is None:
        return record
    return replace(record, host=replace(record.host, telemetry=replace(telemetry, trace=trace_name(record.stem))))
