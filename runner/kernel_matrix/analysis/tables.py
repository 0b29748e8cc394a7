"""Merged tables of one or several folders, opened lazily."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import polars as pl

from kernel_matrix.analysis.withheld_verdicts import inconclusive, session_inconclusive
from kernel_matrix.errors import StoreError
from kernel_matrix.model.enums import VerdictReason
from kernel_matrix.results.schema import (
    OBJECTIONS,
    OBJECTIONS_FILE,
    TABLES,
    TABLES_VERSION,
    TELEMETRY,
    TELEMETRY_FILE,
    VERSION_KEY,
)

_JOINED: Final = ("cells", "samples", "batches", "kernels")
"""Tables whose rows name a record by its number within their folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """The tables of :mod:`kernel_matrix.results.schema`, with their exact columns; read lazily."""

    cells: pl.LazyFrame
    samples: pl.LazyFrame
    batches: pl.LazyFrame
    kernels: pl.LazyFrame
    hosts: pl.LazyFrame
    telemetry: pl.LazyFrame | None = None
    """None if no folder has it: ``merge`` writes it on request."""


def open_tables(folders: Sequence[Path]) -> Tables:
    """Concatenate the tables of all ``folders``, giving each record its own number.

    Verdicts that the audit of a folder withholds are ``inconclusive``.

    Raises:
        StoreError: A table is missing, damaged, or has another schema.
    """
    parts: dict[str, list[pl.LazyFrame]] = {name: [] for name in TABLES}
    offset = 0
    for folder in folders:
        found = {name: _scan(folder / f"{name}.parquet", columns) for name, columns in TABLES.items()}
        if (file := folder / OBJECTIONS_FILE).is_file():
            objections = _scan(file, OBJECTIONS).collect()
            found["cells"] = found["cells"] if objections.is_empty() else _withhold_verdicts(found["cells"], objections)
        # Records of earlier versions, and results of others, are of one rank and do not say so.
        found["cells"] = found["cells"].with_columns(pl.col("ranks").fill_null(1))
        for name, frame in found.items():
            renumbered = frame.with_columns(pl.col("record") + pl.lit(offset, pl.UInt32)) if offset else frame
            parts[name].append(renumbered if name in _JOINED else frame)
        if len(folders) > 1:
            offset += found["cells"].select(pl.col("record").max() + 1).collect().item() or 0
    # Telemetry is joined by run, cell and attempt, so its record numbers need no change.
    files = [folder / TELEMETRY_FILE for folder in folders]
    telemetry = [_scan(file, TELEMETRY) for file in files if file.is_file()]
    return Tables(
        **{name: pl.concat(frames) for name, frames in parts.items()},
        telemetry=pl.concat(telemetry) if telemetry else None,
    )


def _withhold_verdicts(cells: pl.LazyFrame, objections: pl.DataFrame) -> pl.LazyFrame:
    """Make verdicts ``inconclusive`` where checks of the audit object."""
    counts = objections.lazy().select("record", "workload", _objecting=pl.col("checks").list.len().cast(pl.Float64))
    withheld = pl.col("_objecting").is_not_null() & pl.col("verdict").is_not_null()
    return (
        cells.join(counts, on=["record", "workload"], how="left", nulls_equal=True, maintain_order="left")
        .with_columns(
            **inconclusive(withheld, VerdictReason.AUDIT_OBJECTS, pl.col("_objecting")),
            **session_inconclusive(withheld & pl.col("session_verdict").is_not_null(), VerdictReason.AUDIT_OBJECTS),
            verdict_chance=pl.when(~withheld).then("verdict_chance"),
        )
        .drop("_objecting")
    )


def _scan(path: Path, columns: Mapping[str, pl.DataType]) -> pl.LazyFrame:
    again = f"Run `kernel-matrix merge` again, with --out {path.parent}."
    if not path.is_file():
        raise StoreError(f"{path} does not exist", next_step=f"{path.parent} must hold merged tables. {again}")
    try:
        frame = pl.scan_parquet(path)
        schema = dict(frame.collect_schema())
        version = pl.read_parquet_metadata(path).get(VERSION_KEY, str(TABLES_VERSION))
    except (OSError, pl.exceptions.PolarsError) as error:
        raise StoreError(f"{path} cannot be read: {error}", next_step=again) from None
    if schema != columns:
        raise StoreError(f"{path} does not have the schema of this version", next_step=again)
    if version != str(TABLES_VERSION):
        raise StoreError(f"{path} is of version {version}; this program reads {TABLES_VERSION}", next_step=again)
    return frame
