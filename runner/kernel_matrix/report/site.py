"""A static site: the page, and all rows in files of their own, which the page reads as they are needed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import polars as pl

from kernel_matrix.analysis.tables import Tables
from kernel_matrix.errors import StoreError
from kernel_matrix.report.cell_choice import describe_cells, flag_sampled, read_samples
from kernel_matrix.report.column_data import embed_json, encode_columns
from kernel_matrix.report.contents import ReportContents, gather_details, gather_telemetry
from kernel_matrix.report.page import assemble, chart_library
from kernel_matrix.results.store import replace_document

MOST_ROWS: Final = 10_000
"""Rows from which on a file is full; problems stay whole."""
_ROWS: Final = "rows"
_FILE: Final = re.compile(r"\d{4,}\.json")


@dataclass(frozen=True, slots=True)
class _Part:
    """The rows of some problems, as a slice of all rows."""

    start: int
    rows: int
    problems: tuple[str | None, ...]


def write_site(folder: Path, contents: ReportContents, tables: Tables, found: pl.DataFrame) -> Path:
    """Write the site into ``folder``; ``found`` are the outcomes that ``contents`` is made of.

    Rows of an earlier site that are not replaced are removed.

    Returns:
        The site's first file, ``index.html``, which is written last.

    Raises:
        StoreError: A file cannot be written.
        UsageError: The chart library is not installed.
    """
    library = chart_library()
    rows = describe_cells(found, tables)
    parts = list(_parts(rows))
    rows = rows.with_columns(sampled=_sampled(rows, parts))
    looks = gather_telemetry(rows, tables, found, contents.record_folders)
    frames = {"samples": read_samples(rows, tables), "looks": looks}
    names = [f"{number:04}.json" for number in range(len(parts))]
    for name, part in zip(names, parts, strict=True):
        replace_document(folder / _ROWS / name, embed_json(_part_data(part, rows, frames)))
    index = {
        "parts": [{"file": f"{_ROWS}/{name}", "rows": part.rows} for name, part in zip(names, parts, strict=True)],
        "problems": {problem or "": number for number, part in enumerate(parts) for problem in part.problems},
    }
    details = gather_details(tables, found, contents)
    replace_document(folder / "index.html", assemble(contents, details, library, site=index))
    _remove_older(folder / _ROWS, {*names})
    return folder / "index.html"


def _parts(rows: pl.DataFrame) -> Iterator[_Part]:
    """Divide ``rows``, which are sorted by problem, into files."""
    start, size, problems = 0, 0, list[str | None]()
    for problem, count in rows.group_by("problem", maintain_order=True).len().iter_rows():
        if size and size + count > MOST_ROWS:
            yield _Part(start, size, tuple(problems))
            start, size, problems = start + size, 0, []
        size += count
        problems.append(problem)
    if size:
        yield _Part(start, size, tuple(problems))


def _sampled(rows: pl.DataFrame, parts: list[_Part]) -> pl.Series:
    flags = [flag_sampled(rows.slice(part.start, part.rows)) for part in parts]
    return pl.concat(flags) if flags else pl.Series(dtype=pl.Boolean)


def _part_data(part: _Part, rows: pl.DataFrame, frames: dict[str, pl.DataFrame]) -> dict[str, Any]:
    """Encode the rows of one file, with the samples and telemetry of those that have some."""
    within = pl.col("row").cast(pl.Int64).is_between(part.start, part.start + part.rows - 1)
    renumbered = pl.col("row").cast(pl.Int64) - part.start
    others = {name: frame.filter(within).with_columns(row=renumbered) for name, frame in frames.items()}
    cells = rows.slice(part.start, part.rows).drop("record")
    return {name: encode_columns(frame) for name, frame in {"cells": cells, **others}.items()}


def _remove_older(folder: Path, kept: set[str]) -> None:
    try:
        for file in folder.iterdir() if folder.is_dir() else ():
            if _FILE.fullmatch(file.name) and file.name not in kept:
                file.unlink()
    except OSError as error:
        raise StoreError(f"{folder}: an older file cannot be removed: {error}") from None
