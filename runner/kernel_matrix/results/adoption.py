"""Take records of other stores into one's own, each once."""

from __future__ import annotations

from dataclasses import replace
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
        own = map(try_record, store.records.glob(f"{document['cell_id']}.*.json"))
        earlier = [one for one in own if not isinstance(one, Rejection)]
        if any(_origin(one) == _origin(document) for one in earlier):
            return None
        record, trace = record_from_json(document), _trace_of(path, document)
    except (RecordRefusedError, ValueError) as error:
        what = f"{path} is refused: {error}"
        raise AdoptionRefusedError(what, next_step="its cell runs again; look at the log beside it") from None
    # Another process may have taken some home since the store was listed.
    latest = max((one["attempt"] for one in earlier), default=0)
    record = _numbered(record, max(store.next_attempt(record.cell_id), latest + 1))
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
