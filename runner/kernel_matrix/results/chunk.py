"""One chunk of a merge: files that one process reads, checks and turns into a part of each table by itself.

Records with the same run, cell and attempt have the same file name. Files come sorted by name and a name is never
split over chunks, so that duplicates meet in one chunk and chunks need to know nothing of each other.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import polars as pl

from kernel_matrix.results.columns import SampleColumns, TableRows
from kernel_matrix.results.descriptions import DISCARDED, clocks_said, discards
from kernel_matrix.results.kernel_rows import kernel_rows
from kernel_matrix.results.reading import Document, Rejection, conflicts, try_record
from kernel_matrix.results.rows import cell_rows, host_row
from kernel_matrix.results.schema import CELLS, HOSTS, KERNELS
from kernel_matrix.results.telemetry_parts import TelemetryParts

_NAMES = 2000
"""File names per chunk: few enough that its documents and rows take some tens of MiB."""
_COUNTED = ("records", "first_started_at", "last_started_at")


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeChunk:
    """What one process does by itself."""

    index: int
    groups: tuple[tuple[str, ...], ...]
    """Paths that share a file name."""
    folder: Path
    """Where its parts of the tables go."""

    @property
    def files(self) -> int:
        """Files to read."""
        return sum(map(len, self.groups))

    def part(self, table: str) -> Path:
        """Its part of ``table``, an Arrow file."""
        return self.folder / f"{table}.{self.index}.arrow"

    def telemetry_part(self, number: int) -> Path:
        """One of its parts of the table ``telemetry``, which is too large for a single one."""
        return self.folder / f"telemetry.{self.index}.{number}.arrow"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkCounts:
    """What came of a chunk."""

    records: int
    duplicates: int
    samples: int
    discarded: Mapping[str, int]
    """What the cause starts with → samples; ``other`` for the rest."""
    clocks: Mapping[str, int]
    """State of the clocks in words → records."""
    rejected: tuple[Rejection, ...]
    telemetry: tuple[Path, ...]
    """Parts of that table; none where traces are not read."""
    traces: int
    telemetry_samples: int


def split(files: Iterable[str], folder: Path) -> Iterator[MergeChunk]:
    """``files`` in chunks, in the order that the tables have, whatever order they come in."""
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

    :param runs: run id → run, as far as known.
    :param traces: also write its parts of the table ``telemetry``.
    :raises OSError: when a part cannot be written.
    """
    files, parts = _Files(), _Parts(chunk)
    # One document at a time: holding a chunk's documents makes the garbage collector walk them over and over.
    for key, (paths, record) in enumerate(files.records(chunk.groups)):
        parts.add(record, key=key, run=runs.get(record["run_id"]))
        if traces:
            parts.telemetry.add(record, paths, key=key)
    if traces:
        parts.telemetry.close()
    return parts.written(files)


class _Parts:
    """A chunk's rows, on their way into its part of each table."""

    def __init__(self, chunk: MergeChunk) -> None:
        self.telemetry = TelemetryParts(chunk.telemetry_part)
        self._chunk = chunk
        self._cells, self._hosts, self._kernels = TableRows(CELLS), TableRows(HOSTS), TableRows(KERNELS)
        self._samples = SampleColumns()
        self._clocks: Counter[str] = Counter()

    def add(self, record: Document, *, key: int, run: Document | None) -> None:
        """Append what ``record``, whose number within the tables is ``key``, has to say."""
        host = host_row(record)
        self._hosts.append(host)
        for row in cell_rows(record, key=key, host=host, run=run):
            self._cells.append(row)
        for row in kernel_rows(record, key=key):
            self._kernels.append(row)
        self._samples.add(record, key=key)
        self._clocks[clocks_said(record["host"]["clock_state"], record["host"]["clock_policy"])] += 1

    def written(self, files: _Files) -> ChunkCounts:
        """Write the parts and count what is in them."""
        cells = self._cells.frame()
        _write(cells, self._chunk.part("cells"))
        _write(self._samples.frame(), self._chunk.part("samples"))
        _write(self._kernels.frame(), self._chunk.part("kernels"))
        _write(count_hosts(self._hosts.frame()), self._chunk.part("hosts"))
        return ChunkCounts(
            records=len(self._hosts),
            duplicates=files.duplicates,
            samples=len(self._samples),
            discarded=_count_discarded(cells),
            clocks=self._clocks,
            rejected=(*files.rejected, *self.telemetry.rejected),
            telemetry=tuple(self.telemetry.files),
            traces=self.telemetry.traces,
            telemetry_samples=self.telemetry.samples,
        )


def _count_discarded(cells: pl.DataFrame) -> dict[str, int]:
    return discards(cells.select(pl.col(DISCARDED).sum()).row(0, named=True))


def count_hosts(hosts: pl.DataFrame) -> pl.DataFrame:
    """One row per host, with its records counted and their first and last start, sorted by its id."""
    same = [name for name in HOSTS if name not in _COUNTED]
    return (
        hosts.group_by(same)
        .agg(pl.col("records").sum(), pl.col("first_started_at").min(), pl.col("last_started_at").max())
        .select(list(HOSTS))
        .sort("host_id")
    )


def _write(part: pl.DataFrame, path: Path) -> None:
    part.write_ipc(path, compression="lz4")


class _Files:
    """Reads files and tells records, duplicates and rejections apart."""

    def __init__(self) -> None:
        self.duplicates = 0
        self.rejected: list[Rejection] = []

    def records(self, groups: Iterable[tuple[str, ...]]) -> Iterator[tuple[tuple[str, ...], Document]]:
        """The records in files that share a name, for each name, each with its file and the copies of that."""
        for paths in groups:
            valid = [(path, record) for path in paths if (record := self._read(path)) is not None]
            if len(valid) == 1:
                yield (valid[0][0],), valid[0][1]
            else:
                yield from self._settle(valid)

    def _read(self, path: str) -> Document | None:
        read = try_record(path)
        if isinstance(read, Rejection):
            self.rejected.append(read)
            return None
        return read

    def _settle(self, valid: Iterable[tuple[str, Document]]) -> Iterator[tuple[tuple[str, ...], Document]]:
        """Of records of the same cell and attempt, one per run; where they differ none can be told to be true."""
        by_run: dict[str, list[tuple[str, Document]]] = {}
        for path, record in valid:
            by_run.setdefault(record["run_id"], []).append((path, record))
        for _run, claims in sorted(by_run.items()):
            differing = conflicts(claims, "this run, cell and attempt")
            self.rejected += differing
            if not differing:
                self.duplicates += len(claims) - 1
                yield tuple(path for path, _record in claims), claims[0][1]
