"""Merge of result folders into tables, and optionally of all traces; every file is accounted for.

The tables depend only on the set of records: not on the order of folders, on a folder named twice, or on the number of
processes.
"""

from __future__ import annotations

import os
import signal
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import polars as pl

from kernel_matrix.errors import NothingSelectedError, StoreError
from kernel_matrix.model.messages import to_json
from kernel_matrix.results.chunk import ChunkCounts, MergeChunk, count_hosts, process, split
from kernel_matrix.results.packed_set import unpack_sets
from kernel_matrix.results.publishing import METADATA, aside, publish
from kernel_matrix.results.reading import Rejection
from kernel_matrix.results.record_files import find, read_runs
from kernel_matrix.results.schema import TELEMETRY_FILE

Progress = Callable[[int, int], None]
"""Callback that receives the number of files done and the total number of files."""
Work = Callable[[MergeChunk], ChunkCounts]

_ROW_GROUP = 512 * 1024  # rows that are read together: few groups per column, some MiB of memory each


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeReport:
    """Result of a merge: the tables written and counts of all files."""

    tables: Mapping[str, Path]
    """Table name → file."""
    files: int
    """Record files found, each path once."""
    records: int
    """Records in the tables."""
    duplicates: int
    """Files with the same content as a record in the tables."""
    samples: int
    """Timed calls in the tables."""
    discarded: Mapping[str, int]
    """First word of the cause → timed calls that do not count; ``other`` for all other causes."""
    clocks: Mapping[str, int]
    """State of the clocks in words → records."""
    runs: int
    """Runs that records were joined with."""
    rejected: tuple[Rejection, ...]
    """Record, run and trace files that were put aside, by path."""
    traces: int
    """Traces in the table ``telemetry``; 0 if traces were not requested."""
    telemetry_samples: int
    """Rows of that table."""


def merge(
    folders: Sequence[Path],
    out: Path,
    *,
    traces: bool = False,
    progress: Progress | None = None,
    workers: int | None = None,
) -> MergeReport:
    """Merge all records under ``folders`` into the tables of :mod:`kernel_matrix.results.schema`, in ``out``.

    Every record is validated. Invalid files stay where they are and are listed in ``out/rejected.jsonl`` and in the
    report. Identical files are counted once. Files that claim the same run, cell and attempt with different content are
    all rejected, because there is no way to know which is right.

    Args:
        folders: Each is ``<results>``, ``<results>/<matrix name>``, a folder ``records`` or a packed set.
        out: Folder for the tables.
        traces: Also merge the traces that records name into the table ``telemetry``. If false, an older table of that
            name is removed, because its record numbers no longer match.
        progress: Callback for the progress.
        workers: Number of processes; by default one per core. A single chunk is merged in this process.

    Raises:
        UsageError: A folder does not exist or holds no folder ``records``.
        NothingSelectedError: There is no record file.
        StoreError: A packed set is refused, or the tables cannot be written; older tables stay.
    """
    with tempfile.TemporaryDirectory(prefix="kernel-matrix-") as unpacked:
        places = unpack_sets(folders, Path(unpacked).resolve())
        named = {place: folder for place, folder in zip(places, folders, strict=True) if place != folder}
        return _merge(places, out, named, traces=traces, progress=progress, workers=workers)


def _merge(
    folders: Sequence[Path],
    out: Path,
    named: Mapping[Path, Path],
    *,
    traces: bool,
    progress: Progress | None,
    workers: int | None,
) -> MergeReport:
    """Merge as :func:`merge` does; folders that are ``named`` otherwise are so in rejections."""
    files, run_files = find(folders)
    if not files:
        raise NothingSelectedError(
            f"no record file in {', '.join(map(str, folders))}", next_step="Run `kernel-matrix run` first."
        )
    runs, rejected = read_runs(run_files)
    with aside(out, untouched="records and older tables") as folder:
        chunks = tuple(split(files, folder))
        counts = _process_all(chunks, partial(process, runs=runs, traces=traces), workers, progress)
        rejected = sorted(_renamed(r, named) for r in (*rejected, *(r for c in counts for r in c.rejected)))
        telemetry = _write_telemetry(counts, folder) if traces else {}
        tables = publish(_write_tables(chunks, counts, folder) | telemetry, map(to_json, rejected), out)
    return _report(counts, tables=tables, files=len(files), runs=len(runs), rejected=tuple(rejected))


def _renamed(rejection: Rejection, named: Mapping[Path, Path]) -> Rejection:
    """Return ``rejection`` with the path of the packed set in place of the folder that it was unpacked to."""
    path = Path(rejection.path)
    for place, folder in named.items():
        if path.is_relative_to(place):
            return replace(rejection, path=str(folder / path.relative_to(place)))
    return rejection


def _report(counts: Sequence[ChunkCounts], **found: Any) -> MergeReport:
    """Return the report of all chunks; ``found`` has its remaining fields."""
    return MergeReport(
        records=sum(c.records for c in counts),
        duplicates=sum(c.duplicates for c in counts),
        samples=sum(c.samples for c in counts),
        discarded=_summed(c.discarded for c in counts),
        clocks=_summed(c.clocks for c in counts),
        traces=sum(c.traces for c in counts),
        telemetry_samples=sum(c.telemetry_samples for c in counts),
        **found,
    )


def _summed(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for count in counts:
        total.update(count)
    return dict(total)


def _process_all(
    chunks: Sequence[MergeChunk], work: Work, workers: int | None, progress: Progress | None
) -> list[ChunkCounts]:
    """Run ``work`` on every chunk, in at most ``workers`` processes, and return the counts in the chunks' order."""
    total = sum(chunk.files for chunk in chunks)
    counts: dict[int, ChunkCounts] = {}
    done = 0
    for chunk, counted in _in_any_order(chunks, work, min(workers or len(os.sched_getaffinity(0)), len(chunks))):
        counts[chunk.index] = counted
        done += chunk.files
        if progress is not None:
            progress(done, total)
    return [counts[chunk.index] for chunk in chunks]


def _in_any_order(chunks: Sequence[MergeChunk], work: Work, workers: int) -> Iterator[tuple[MergeChunk, ChunkCounts]]:
    if workers == 1:
        yield from ((chunk, work(chunk)) for chunk in chunks)
        return
    with _pool(workers) as pool:
        # Workers inherit the signal mask of this thread, so that only the parent handles Ctrl-C from the start.
        with _blocked_interrupts():
            futures = {pool.submit(work, chunk): chunk for chunk in chunks}
        for future in as_completed(futures):
            yield futures[future], future.result()


@contextmanager
def _pool(workers: int) -> Iterator[Executor]:
    """Provide worker processes that end with this one, even if it is killed."""
    # spawn: a fork would copy the locks that polars' threads hold.
    pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_follow_parent)
    try:
        yield pool
    except BrokenProcessPool as error:
        raise StoreError(
            "a worker process of the merge was killed from outside",
            next_step="Look for the kernel's out-of-memory messages, then merge again: nothing was changed.",
        ) from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _blocked_interrupts() -> Iterator[None]:
    """Block SIGINT until the end of the context."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _follow_parent() -> None:
    """End this worker when its parent ends: a killed parent cannot stop its workers."""
    parent = parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)


def _write_tables(chunks: Sequence[MergeChunk], counts: Sequence[ChunkCounts], folder: Path) -> dict[str, Path]:
    """Join the chunks' parts into one Parquet file per table."""
    files = {}
    for table in ("cells", "samples", "batches", "kernels"):
        parts = [
            _renumbered(chunk.part(table), first) for chunk, first in zip(chunks, _first_keys(counts), strict=True)
        ]
        files[table] = _sink(pl.concat(parts), folder / f"{table}.parquet")
    hosts = count_hosts(pl.concat(pl.read_ipc(chunk.part("hosts")) for chunk in chunks))
    return files | {"hosts": _sink(hosts.lazy(), folder / "hosts.parquet")}


def _write_telemetry(counts: Sequence[ChunkCounts], folder: Path) -> dict[str, Path]:
    parts = [
        _renumbered(part, first)
        for count, first in zip(counts, _first_keys(counts), strict=True)
        for part in count.telemetry
    ]
    return {"telemetry": _sink(pl.concat(parts), folder / TELEMETRY_FILE)}


def _first_keys(counts: Sequence[ChunkCounts]) -> list[int]:
    """Return the number of each chunk's first record within the tables."""
    return list(accumulate((c.records for c in counts[:-1]), initial=0))


def _renumbered(part: Path, first: int) -> pl.LazyFrame:
    return pl.scan_ipc(part).with_columns(pl.col("record") + pl.lit(first, pl.UInt32))


def _sink(table: pl.LazyFrame, path: Path) -> Path:
    table.sink_parquet(path, compression="zstd", row_group_size=_ROW_GROUP, metadata=METADATA)
    return path
