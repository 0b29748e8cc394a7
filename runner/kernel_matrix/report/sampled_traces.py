"""Telemetry of the few records whose samples are on the page: to merge the traces of all takes much longer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import polars as pl

from kernel_matrix.results.reading import Document, RecordRefusedError
from kernel_matrix.results.record_files import find
from kernel_matrix.results.schema import TELEMETRY
from kernel_matrix.results.trace import read_trace_document, trace_name

_KEY: Final = ("run_id", "cell_id", "attempt")


def read_sampled_traces(folders: Sequence[Path], records: pl.DataFrame) -> pl.LazyFrame:
    """Read the traces of ``records`` that lie in result ``folders``, as rows of the table ``telemetry``.

    Args:
        folders: Result folders, as :class:`kernel_matrix.Results` takes them.
        records: ``run_id``, ``cell_id`` and ``attempt`` of each record.
    """
    places = sorted({Path(file).parents[1] for file in find(folders)[0]})
    parts = []
    for key in records.select(_KEY).unique().iter_rows():
        trace = _trace_of(key, places)
        if trace is not None:
            columns = {name: values for name, values in trace["columns"].items() if name in TELEMETRY}
            rows = pl.DataFrame(columns, schema={name: TELEMETRY[name] for name in columns})
            parts.append(rows.with_columns(pl.lit(value).alias(name) for name, value in zip(_KEY, key, strict=True)))
    return pl.concat([pl.DataFrame(schema=TELEMETRY), *parts], how="diagonal_relaxed").lazy()


def _trace_of(key: tuple[str, str, int], places: Iterable[Path]) -> Document | None:
    """Return the trace of one record; None if there is none, or copies differ."""
    run_id, cell_id, attempt = key
    found = []
    for place in places:
        file = place / "traces" / trace_name(f"{cell_id}.{attempt}")
        try:
            trace = read_trace_document(file) if file.exists() else None
        except RecordRefusedError:  # `merge` says why
            continue
        if trace is not None and trace["run_id"] == run_id:
            found.append(trace)
    return found[0] if found and all(trace == found[0] for trace in found) else None
