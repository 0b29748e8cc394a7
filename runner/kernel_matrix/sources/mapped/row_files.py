"""Rows of CSV, TSV and Parquet files, in the form in which JSON files are read."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from kernel_matrix.sources.json_files import BadValueError, JsonFile
from kernel_matrix.untrusted_json import decode, read_bytes

_CSV: Final = (".csv", ".tsv")
_PARQUET: Final = ".parquet"
TABLE_ENDINGS: Final = (*_CSV, _PARQUET)
"""Endings of the names of files whose rows need a mapping."""

MAX_ROWS: Final = 1_000_000  # a small Parquet file can hold billions
_BATCH_ROWS: Final = 1024
_SEPARATORS: Final = ",;\t"
_LONGEST_REASON: Final = 200


class TableFile(JsonFile):
    """A CSV or Parquet file whose documents are its rows, as objects of columns.

    Args:
        path: Path of a regular file.

    Raises:
        BadValueError: Nothing of it can be read.
    """

    def _read_document(self) -> bool:
        content = read_bytes(self.path, follow_links=True)
        self._sha256.update(content)
        self._content = content
        if self.path.suffix.lower() in _CSV:
            self._table = decode(content)
        return False

    def _parsed(self) -> Iterator[tuple[int | None, Any]]:
        """Yield (line, row), or (line, error); for Parquet the number of the row is its line."""
        try:
            yield from _csv_rows(self._table) if self.path.suffix.lower() in _CSV else _parquet_rows(self._content)
        except BadValueError as error:
            yield error.line, error


def open_results(path: Path) -> JsonFile:
    """Open a file of results by the ending of its name.

    Raises:
        BadValueError: Nothing of it can be read.
    """
    return TableFile(path) if path.suffix.lower() in TABLE_ENDINGS else JsonFile(path)


def _csv_rows(text: str) -> Iterator[tuple[int, Any]]:
    first = text.partition("\n")[0]
    separator = max(_SEPARATORS, key=first.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    header: list[str] = []
    line = 1
    try:
        for fields in reader:
            if not header:
                header = [name.strip() for name in fields]
                twice = next((name for name in header if name and header.count(name) > 1), None)
                if twice is not None:
                    raise BadValueError(f"has the column {twice!r} twice", (), line)
            elif len(fields) == len(header):
                yield line, dict(zip(header, fields, strict=True))
            elif fields:  # a blank line has none
                what = f"has {len(fields)} fields, but the header has {len(header)}"
                yield line, BadValueError(what, (), line)
            line = reader.line_num + 1
    except csv.Error as error:
        raise BadValueError(f"is not readable as CSV from here on: {error}", (), line) from None


def _parquet_rows(content: bytes) -> Iterator[tuple[int, Any]]:
    import polars as pl  # noqa: PLC0415  # slow to import, and few imports need it

    # A damaged file can make polars panic, and PanicException is not an Exception.
    faults = (pl.exceptions.PolarsError, pl.exceptions.PanicException)
    try:
        table = pl.scan_parquet(io.BytesIO(content))
        rows = table.select(pl.len()).collect().item()
        read = min(rows, MAX_ROWS)
        for start in range(0, read, _BATCH_ROWS):
            batch = table.slice(start, min(_BATCH_ROWS, read - start)).collect().to_dicts()
            yield from enumerate(batch, start=start + 1)
    except faults as error:
        reason = " ".join(str(error).split())[:_LONGEST_REASON]
        raise BadValueError(f"is not readable as Parquet: {reason}") from None
    if rows > MAX_ROWS:
        raise BadValueError(f"has {rows} rows; those after the first {MAX_ROWS} are not read", (), MAX_ROWS + 1)
