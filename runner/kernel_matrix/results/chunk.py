"""Chunks of a merge: one process reads and checks the files of a chunk and writes its part of each table.

Records with the same run, cell and attempt have the same file name. Files are sorted by name and files of one name stay
in one chunk, so that each chunk finds its own duplicates and needs nothing from the others.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import polars as pl

from kernel_matrix.results.batch_rows import batch_rows
from kernel_matrix.results.columns import SampleColumns, TableRows
from kernel_matrix.results.descriptions import DISCARDED, describe_clocks, discards
from kernel_matrix.results.judged import times_of
from kernel_matrix.results.kernel_rows import kernel_rows
from kernel_matrix.results.reading import Document, Rejection, conflicts, try_record
from kernel_matrix.results.rows import cell_rows, host_row
from kernel_matrix.results.schema import BATCHES, CELLS, HOSTS, KERNELS
from kernel_matrix.results.telemetry_parts import TelemetryParts

_NAMES = 2000
"""File names per chunk: few enough that its documents and rows take some tens of MiB."""
_COUNTED = ("records", "first_started_at", "last_started_at")


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeChunk:
    """Record files that one process merges, and the folder for its results."""

    index: int
    groups: tuple[tuple[str, ...], ...]
    """Groups of paths that share a file name."""
    folder: Path
    """Folder for the chunk's parts of the tables."""

    @property
    def files(self) -> int:
        """Number of files to read."""
        return sum(map(len, self.groups))

    def part(self, table: str) -> Path:
        """Return the path of the chunk's part of ``table``, an Arrow file."""
        return self.folder / f"{table}.{self.index}.arrow"

    def telemetry_part(self, number: int) -> Path:
        """Return the path of one of the chunk's parts of ``telemetry``; that table is too large for a single part."""
        return self.folder / f"telemetry.{self.index}.{number}.arrow"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkCounts:
    """Counts of one processed chunk."""

    records: int
    duplicates: int
    samples: int
    discarded: Mapping[str, int]
    """First word of the cause → discarded samples; ``other`` for all other causes."""
    clocks: Mapping[str, int]
    """State of the clocks, in words → records."""
    rejected: tuple[Rejection, ...]
    telemetry: tuple[Path, ...]
    """Parts of the table ``telemetry``; empty where traces are not read."""
    traces: int
    telemetry_samples: int


def split(files: Iterable[str], folder: Path) -> Iterator[MergeChunk]:
    """Yield ``files`` in chunks, sorted by name and path."""
    groups: list[tuple[str, ...]] = []
    index = 0
    for _name, paths in groupby(sorted(files, key=_name_and_path), key=os.path.basename):
        groups.append(tuple(paths))
        if len(groups) == _NAMES:
            yield MergeChunk(index=index, groups=tuple(groups), folder=folder)
            groups, index = [], index + 1
    if groups:
        yield MergeChunk(index=index, groups=tuple(groups), folder=folder)


def _name_and_path(path: str) -> tuple[str, str]:
    return os.path.basename(path), path  # noqa: PTH119  # making 100,000 Paths costs more than sorting as many names


def process(chunk: MergeChunk, runs: Mapping[str, Document], *, traces: bool = False) -> ChunkCounts:
    """Write the chunk's part of each table; its records are numbered from 0.

    Args:
        chunk: The files to read.
        runs: Run id → run, for runs whose file was found.
        traces: Also write its parts of the table ``telemetry``.

    Raises:
        OSError: A part cannot be written.
    """
    files, parts = _FileReader(), _ChunkWriter(chunk)
    # Handle one document at a time: while many are held, each garbage collection walks all of them.
    for key, (paths, record) in enumerate(files.records(chunk.groups)):
        parts.add(record, key=key, run=runs.get(record["run_id"]))
        if traces:
            parts.telemetry.add(record, paths, key=key)
    if traces:
        parts.telemetry.close()
    return parts.write(files)


class _ChunkWriter:
    """Writer of a chunk's part of each table."""

    def __init__(self, chunk: MergeChunk) -> None:
        self.telemetry = TelemetryParts(chunk.telemetry_part)
        self._chunk = chunk
        self._cells, self._hosts, self._kernels = TableRows(CELLS), TableRows(HOSTS), TableRows(KERNELS)
        self._samples, self._batches = SampleColumns(), TableRows(BATCHES)
        self._clocks: Counter[str] = Counter()

    def add(self, record: Document, *, key: int, run: Document | None) -> None:
        """Append the rows of ``record``.

        Args:
            record: A checked record.
            key: The record's number within the tables.
            run: The run that made the record, if its file was found.
        """
        host, times = host_row(record), times_of(record)
        self._hosts.append(host)
        for row in cell_rows(record, times, key=key, host=host, run=run):
            self._cells.append(row)
        for row in kernel_rows(record, key=key):
            self._kernels.append(row)
        self._samples.add(record, key=key)
        for row in batch_rows(record, times, key=key):
            self._batches.append(row)
        self._clocks[describe_clocks(record["host"]["clock_state"], record["host"]["clock_policy"])] += 1

    def write(self, files: _FileReader) -> ChunkCounts:
        """Write the parts and count what is in them."""
        cells = self._cells.frame()
        _write(cells, self._chunk.part("cells"))
        _write(self._samples.frame(), self._chunk.part("samples"))
        _write(self._batches.frame(), self._chunk.part("batches"))
        _write(self._kernels.frame(), self._chunk.part("kernels"))
        _write(count_hosts(self._hosts.frame()), self._chunk.part("hosts"))
        return ChunkCounts(
            records=len(self._hosts),
            duplicates=files.duplicates,
            samples=len(self._samples),
            discarded=discards(cells.select(pl.col(DISCARDED).sum()).row(0, named=True)),
            clocks=self._clocks,
            rejected=(*files.rejected, *self.telemetry.rejected),
            telemetry=tuple(self.telemetry.files),
            traces=self.telemetry.traces,
            telemetry_samples=self.telemetry.samples,
        )


def count_hosts(hosts: pl.DataFrame) -> pl.DataFrame:
    """Return one row per host, sorted by its id, with its number of records and their first and last start."""
    same = [name for name in HOSTS if name not in _COUNTED]
    return (
        hosts.group_by(same)
        .agg(pl.col("records").sum(), pl.col("first_started_at").min(), pl.col("last_started_at").max())
        .select(list(HOSTS))
        .sort("host_id")
    )


def _write(part: pl.DataFrame, path: Path) -> None:
    part.write_ipc(path, compression="lz4")


class _FileReader:
    """Reader of record files that also collects duplicates and rejections."""

    def __init__(self) -> None:
        self.duplicates = 0
        self.rejected: list[Rejection] = []

    def records(self, groups: Iterable[tuple[str, ...]]) -> Iterator[tuple[tuple[str, ...], Document]]:
        """Yield one record per run for each group of files with one name, with the paths of its copies."""
        for paths in groups:
            valid = [(path, record) for path in paths if (record := self._read(path)) is not None]
            if len(valid) == 1:
                yield (valid[0][0],), valid[0][1]
            else:
                yield from self._deduplicate(valid)

    def _read(self, path: str) -> Document | None:
        read = try_record(path)
        if isinstance(read, Rejection):
            self.rejected.append(read)
            return None
        return read

    def _deduplicate(self, valid: Iterable[tuple[str, Document]]) -> Iterator[tuple[tuple[str, ...], Document]]:
        """Yield one record per run; if the copies of a record differ, reject all of them."""
        by_run: dict[str, list[tuple[str, Document]]] = {}
        for path, record in valid:
            by_run.setdefault(record["run_id"], []).append((path, record))
        for _run, claims in sorted(by_run.items()):
            differing = conflicts(claims, "this run, cell and attempt")
            self.rejected += differing
            if not differing:
                self.duplicates += len(claims) - 1
                yield tuple(path for path, _record in claims), claims[0][1]
