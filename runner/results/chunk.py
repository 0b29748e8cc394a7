"""One chunk of a merge: files that one process reads, checks and turns into a part of each table by itself.

Records with the same run, cell and attempt have the same file name. Files come sorted by name and a name is never
split over chunks, so that duplicates meet in one chunk and chunks need to know nothing of each other.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import polars as pl

from runner.results.columns import Rows, SampleColumns
from runner.results.reading import Document, Reason, Rejection, try_record
from runner.results.rows import cell_rows, host_row
from runner.results.schema import CELLS, HOSTS

_NAMES = 2000
"""File names per chunk: few enough that its documents and rows take some tens of MiB."""
_COUNTED = ("records", "first_started_at", "last_started_at")


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What came of a chunk."""

    records: int
    duplicates: int
    samples: int
    rejected: tuple[Rejection, ...]


def split(files: Iterable[str], folder: Path) -> Iterator[Chunk]:
    """``files`` in chunks, in the order that the tables have, whatever order they come in."""
    groups: list[tuple[str, ...]] = []
    index = 0
    for _name, paths in groupby(sorted(files, key=_name_and_path), key=os.path.basename):
        groups.append(tuple(paths))
        if len(groups) == _NAMES:
            yield Chunk(index=index, groups=tuple(groups), folder=folder)
            groups, index = [], index + 1
    if groups:
        yield Chunk(index=index, groups=tuple(groups), folder=folder)


def _name_and_path(path: str) -> tuple[str, str]:
    return os.path.basename(path), path  # noqa: PTH119  # making 100,000 Paths costs more than sorting as many names


def process(chunk: Chunk, runs: Mapping[str, Document]) -> Counts:
    """Write the chunk's part of each table; its records are numbered from 0.

    :param runs: run id → run, as far as known.
    :raises OSError: when a part cannot be written.
    """
    cells, hosts, samples = Rows(CELLS), Rows(HOSTS), SampleColumns()
    files = _Files()
    # One document at a time: holding a chunk's documents makes the garbage collector walk them over and over.
    for key, record in enumerate(files.records(chunk.groups)):
        host = host_row(record)
        hosts.append(host)
        for row in cell_rows(record, key=key, host=host, run=runs.get(record["run_id"])):
            cells.append(row)
        samples.add(record, key=key)
    _write(cells.frame(), chunk.part("cells"))
    _write(samples.frame(), chunk.part("samples"))
    _write(count_hosts(hosts.frame()), chunk.part("hosts"))
    return Counts(records=len(hosts), duplicates=files.duplicates, samples=len(samples), rejected=tuple(files.rejected))


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

    def records(self, groups: Iterable[tuple[str, ...]]) -> Iterator[Document]:
        """The records in files that share a name, for each name."""
        for paths in groups:
            valid = [(path, record) for path in paths if (record := self._read(path)) is not None]
            if len(valid) == 1:
                yield valid[0][1]
            else:
                yield from self._settle(valid)

    def _read(self, path: str) -> Document | None:
        read = try_record(path)
        if isinstance(read, Rejection):
            self.rejected.append(read)
            return None
        return read

    def _settle(self, valid: Iterable[tuple[str, Document]]) -> Iterator[Document]:
        """Of records of the same cell and attempt, one per run; where they differ none can be told to be true."""
        by_run: dict[str, list[tuple[str, Document]]] = {}
        for path, record in valid:
            by_run.setdefault(record["run_id"], []).append((path, record))
        for _run, claims in sorted(by_run.items()):
            first = claims[0][1]
            if all(record == first for _path, record in claims):
                self.duplicates += len(claims) - 1
                yield first
            else:
                detail = f"{len(claims)} files claim this run, cell and attempt with different content"
                self.rejected += [Rejection(path=p, reason=Reason.CONFLICTING, detail=detail) for p, _record in claims]
