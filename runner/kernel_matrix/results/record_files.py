"""Search for the files that a merge reads."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from kernel_matrix.errors import UsageError
from kernel_matrix.results.packed_set import ENDING
from kernel_matrix.results.reading import Document, RecordRefusedError, Rejection, read_run


def find(folders: Sequence[Path]) -> tuple[list[str], list[str]]:
    """Return the record files and run files under ``folders``, each real path once, sorted.

    Args:
        folders: Each is ``<results>``, ``<results>/<matrix name>`` or a folder ``records``.

    Raises:
        UsageError: A folder does not exist or holds no folder ``records``.
    """
    records: set[str] = set()
    runs: set[str] = set()
    for folder in folders:
        for place in _record_folders(folder):
            records.update(_json_files(place))
            runs.update(_json_files(place.parent / "runs"))
    return sorted(records), sorted(runs)


def _record_folders(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise UsageError(f"{folder} is not a folder", next_step="Name a folder that `kernel-matrix run` wrote.")
    root = folder.resolve()
    places = [root] if root.name == "records" else [root / "records", *root.glob("*/records")]
    found = sorted({place.resolve() for place in places if place.is_dir()})
    if not found:
        sets = ", ".join(map(str, sorted(folder.glob(f"*{ENDING}"))))
        named = f"one of the packed sets in it: {sets}" if sets else "the folder that `kernel-matrix run` wrote"
        raise UsageError(
            f"{folder} holds no results: neither records/ nor <matrix name>/records/ is in it",
            next_step=f"Name {named}.",
        )
    return found


def _json_files(folder: Path) -> Iterator[str]:
    if folder.is_dir():
        with os.scandir(folder) as entries:
            yield from (e.path for e in entries if e.name.endswith(".json") and not e.name.startswith("."))


def read_runs(files: Iterable[str]) -> tuple[dict[str, Document], list[Rejection]]:
    """Return the runs by id, and the files that are not runs. Of copies of one run, the one that ended last counts."""
    runs: dict[str, Document] = {}
    rejected = []
    for path in files:
        try:
            run = read_run(path)
        except RecordRefusedError as error:  # noqa: PERF203  # there are few runs
            rejected.append(error.of(path))
        else:
            runs[run["run_id"]] = max(run, runs.get(run["run_id"], run), key=_by_end)
    return runs, rejected


def _by_end(run: Document) -> tuple[str, str]:
    return run["ended_at"] or "", json.dumps(run, sort_keys=True)
