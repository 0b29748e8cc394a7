"""Parts of the table ``telemetry``, made from the traces of one chunk's records."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import polars as pl

from kernel_matrix.platforms import EventReason
from kernel_matrix.results.columns import frame
from kernel_matrix.results.reading import Document, RecordRefusedError, Rejection, RejectionReason, conflicts
from kernel_matrix.results.schema import TELEMETRY
from kernel_matrix.results.trace import read_trace_document

_ROWS = 200_000
"""Rows per part; the traces of a whole chunk may not fit into memory."""


class TelemetryParts:
    """Reader of the traces that records name; writes them as Arrow files of some hundred thousand rows."""

    def __init__(self, part: Callable[[int], Path]) -> None:
        """Create a writer without parts.

        Args:
            part: Function from the number of a part to its file.
        """
        self._part = part
        self._gathered: list[pl.DataFrame] = []
        self._waiting = 0
        self.rejected: list[Rejection] = []
        self.files: list[Path] = []
        self.traces = 0
        self.samples = 0

    def add(self, record: Document, paths: Sequence[str], *, key: int) -> None:
        """Append the trace of ``record``, if it names one.

        Args:
            record: A checked record.
            paths: The record's files, one per copy; a trace may lie beside any of them.
            key: The record's number within the tables.
        """
        telemetry = record["host"].get("telemetry")
        if telemetry is None or telemetry["trace"] is None:
            return
        trace = self._deduplicate(record, _places(paths, telemetry["trace"]))
        if trace is None:
            return
        rows = _rows(trace, key)
        self._gathered.append(rows)
        self._waiting += rows.height
        self.traces += 1
        self.samples += rows.height
        if self._waiting >= _ROWS:
            self._flush()

    def close(self) -> None:
        """Write the remaining rows; there is always at least one part, so that an empty table exists too."""
        if self._gathered or not self.files:
            self._flush()

    def _flush(self) -> None:
        file = self._part(len(self.files))
        pl.concat([pl.DataFrame(schema=TELEMETRY), *self._gathered]).write_ipc(file, compression="lz4")
        self.files.append(file)
        self._gathered, self._waiting = [], 0

    def _deduplicate(self, record: Document, places: Sequence[str]) -> Document | None:
        """Return the trace in ``places``; if copies differ, reject all of them."""
        traces = [(place, trace) for place in places if (trace := self._read(record, place)) is not None]
        differing = conflicts(traces, "to be the trace of this run, cell and attempt")
        self.rejected += differing
        return traces[0][1] if traces and not differing else None

    def _read(self, record: Document, place: str) -> Document | None:
        try:
            return _trace_of(record, place)
        except RecordRefusedError as error:
            self.rejected.append(error.of(place))
            return None


def _trace_of(record: Document, place: str) -> Document:
    trace = read_trace_document(place)
    if trace["run_id"] != record["run_id"]:
        raise RecordRefusedError(
            RejectionReason.INCONSISTENT, f"is of run {trace['run_id']}, its record of {record['run_id']}"
        )
    return trace


def _places(paths: Sequence[str], name: str) -> list[str]:
    """Return the paths of a trace beside each copy of its record; if none exists, the first that should."""
    places = [str(Path(path).parents[1] / "traces" / name) for path in paths]
    return [place for place in places if os.path.lexists(place)] or places[:1]


def _rows(trace: Document, key: int) -> pl.DataFrame:
    samples = len(trace["columns"]["at_ns"])
    whole = {name: trace[name] for name in ("run_id", "cell_id", "attempt")} | {"record": key}
    columns = {name: [value] * samples for name, value in whole.items()}
    counters = {f"{reason}_ns": values for reason, values in _counters(trace, samples)}
    return frame({**columns, **trace["columns"], **counters}, TELEMETRY)


def _counters(trace: Document, samples: int) -> Iterator[tuple[str, list[int | None]]]:
    for reason in EventReason:
        yield reason.value, trace["reason_ns"].get(reason.value) or [None] * samples
