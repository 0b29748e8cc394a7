"""Atomic replacement of the tables in a folder, with the list of files that are missing from them."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl

from kernel_matrix.errors import StoreError
from kernel_matrix.results.schema import OBJECTIONS_FILE, TABLES_VERSION, TELEMETRY_FILE, VERSION_KEY

REJECTED = "rejected.jsonl"
"""File beside the tables: one JSON object per rejected file, with path, reason and detail."""
METADATA = {VERSION_KEY: str(TABLES_VERSION)}
"""Metadata of every Parquet file of tables."""


@contextmanager
def aside(out: Path, *, untouched: str) -> Iterator[Path]:
    """Provide a temporary folder inside ``out``; failures to write there become :class:`StoreError`.

    Args:
        out: Folder for the tables.
        untouched: Description of the files that stay as they were after such a failure.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=out, prefix=".tables-") as folder:
            yield Path(folder)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise StoreError(
            f"the tables in {out} cannot be written: {error}",
            next_step=f"Make room there or name another folder with --out; {untouched} are untouched.",
        ) from error


def publish(tables: Mapping[str, Path], rejected: Iterable[Mapping[str, Any]], out: Path) -> dict[str, Path]:
    """Move the finished ``tables`` into ``out``, with the list of what is missing from them.

    Older tables ``telemetry`` and ``objections`` are removed unless ``tables`` has them, because their record numbers
    no longer match.

    Args:
        tables: Table → its file in a folder of :func:`aside`.
        rejected: One object per missing file or result.
        out: Folder for the tables.

    Returns:
        Table → its file in ``out``.
    """
    listing = tables["cells"].with_name(REJECTED)
    listing.write_text("".join(f"{json.dumps(row, sort_keys=True)}\n" for row in rejected), encoding="utf-8")
    listing.replace(out / REJECTED)
    for name, file_name in (("telemetry", TELEMETRY_FILE), ("objections", OBJECTIONS_FILE)):
        if name not in tables:
            (out / file_name).unlink(missing_ok=True)
    return {name: file.replace(out / file.name) for name, file in tables.items()}
