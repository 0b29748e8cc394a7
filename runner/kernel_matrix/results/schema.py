"""Explicit schema of the merged tables; inference would drop columns and truncate numbers silently.

``cells``: one row per record × session × workload; a record without sessions or workloads has one row with nulls.
``samples``: one row per timed call; ``record``, ``session`` and ``workload`` join it to ``cells``.
``batches``: one row per batch of calls; the same columns join it to ``cells``.
``kernels``: one row per built kernel and, per session, per traced kernel; ``record`` joins it to ``cells``.
``hosts``: one row per distinct host, sandbox and device; ``host_id`` joins it to ``cells``.
``telemetry``, only on request: one row per telemetry sample; ``record`` joins it to ``cells``.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Final

import polars as pl

from kernel_matrix.model.messages import BatchBlock, Block, SessionReport, TracedKernel, WorkloadReport
from kernel_matrix.results.derived_columns import (
    AttemptColumns,
    BuildColumns,
    DeviceColumns,
    HostCounts,
    HostKey,
    KernelOrigin,
    RecordNumber,
    SessionColumns,
    SessionKey,
    TimedBatch,
    TimedSample,
    WorkloadColumns,
)
from kernel_matrix.results.described_columns import FieldColumn, columns_of
from kernel_matrix.results.record import CellKey, CompiledKernelInfo, DeviceInfo, HostRecord, Outcome, Record
from kernel_matrix.results.run_info import RunInfo
from kernel_matrix.results.trace import TraceFile
from kernel_matrix.sources import Origin

TABLES_VERSION: Final = 5
"""Version of the tables; changes when there is one more, or a column is renamed, retyped or removed, or an
enum gets a word."""
VERSION_KEY: Final = "kernel_matrix_tables"
"""Key of the version in the metadata of each Parquet file of tables.

A file without it is recognised by its columns.
"""

_DERIVED: Final = frozenset(
    {
        *(RecordNumber, SessionKey, SessionColumns, WorkloadColumns, AttemptColumns, BuildColumns, DeviceColumns),
        *(TimedSample, TimedBatch, KernelOrigin, HostKey, HostCounts, CompiledKernelInfo, TracedKernel),
    }
)
"""Classes whose fields all become columns."""

_CELL_PARTS = (
    *(RecordNumber, Record, RunInfo, CellKey, Outcome),
    *(SessionReport, SessionColumns, WorkloadReport, WorkloadColumns, AttemptColumns),
    *(HostRecord, DeviceColumns, BuildColumns),
)


def _columns(table: str, *kinds: type) -> dict[str, FieldColumn]:
    """Return the columns of ``kinds`` by name; of columns with one name, the first."""
    found: dict[str, FieldColumn] = {}
    for kind in kinds:
        for column in columns_of(kind, table=table, every=kind in _DERIVED):
            found.setdefault(column.name, column)
    return found


COLUMNS: Final = {
    "cells": _columns("cells", *_CELL_PARTS),
    "samples": _columns("samples", RecordNumber, SessionKey, TimedSample, Block),
    "batches": _columns("batches", RecordNumber, SessionKey, TimedBatch, BatchBlock),
    "kernels": _columns("kernels", RecordNumber, SessionKey, KernelOrigin, CompiledKernelInfo, TracedKernel),
    "hosts": _columns("hosts", HostKey, HostRecord, HostCounts),
    "telemetry": _columns("telemetry", RecordNumber, TraceFile),
}
"""Table → column name → the field it comes from, in file order."""


def _schema(table: str) -> dict[str, pl.DataType]:
    return {name: column.dtype for name, column in COLUMNS[table].items()}


CELLS: Final = _schema("cells")
SAMPLES: Final = _schema("samples")
BATCHES: Final = _schema("batches")
KERNELS: Final = _schema("kernels")
HOSTS: Final = _schema("hosts")

TABLES: Final = {"cells": CELLS, "samples": SAMPLES, "batches": BATCHES, "kernels": KERNELS, "hosts": HOSTS}
"""Table name → column → type, in file order; these are always written."""

TELEMETRY_FILE: Final = "telemetry.parquet"
TELEMETRY: Final = _schema("telemetry")
OBJECTIONS_FILE: Final = "objections.parquet"
OBJECTIONS: Final[dict[str, pl.DataType]] = {
    **{name: CELLS[name] for name in ("record", "workload")},
    "checks": pl.List(pl.String()),
}
"""Rows of ``cells`` whose verdict the audit withholds, and the names of its checks."""
"""Schema of the table of all traces, in file order. It is large and written only on request."""

DEVICE: Final = tuple(column.name for column in columns_of(DeviceInfo, table="hosts"))
"""Columns of ``cells`` and ``hosts`` about the device."""

ORIGIN: Final = tuple(field.name for field in fields(Origin))
"""A candidate's origin; in ``cells`` each name starts with ``origin_``."""
