"""Baselines: frozen copies of merged tables, by name, with a digest of their content and where they came from."""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import polars as pl

from kernel_matrix.analysis.tables import open_tables
from kernel_matrix.errors import NothingSelectedError, StoreError, UsageError
from kernel_matrix.file_hash import file_sha256
from kernel_matrix.model.messages import from_json, to_json
from kernel_matrix.nightly.paths import baselines_folder, is_night_name, tables_of
from kernel_matrix.results.merge import merge
from kernel_matrix.results.schema import TABLES
from kernel_matrix.untrusted_json import read_object

VERSION: Final = 1  # of the file's format
_FACTS: Final = "baseline.json"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """The description of a baseline, written beside its tables."""

    name: str
    made_at: str
    """UTC, RFC 3339."""
    made_from: str
    """The folder its tables were copied from, or whose records were merged; absolute."""
    content_sha256: str
    """Digest over the names and digests of its tables."""
    files: Mapping[str, str]
    """File name → SHA-256."""
    records: int
    cells: int
    """Different cells."""
    matrices: tuple[str, ...]
    gpus: tuple[str, ...]
    version: int = VERSION


def set_baseline(results: Path, name: str, source: Path, *, made_at: str, force: bool = False) -> Baseline:
    """Freeze what is in ``source`` under ``name``.

    Args:
        results: The folder that all results are in.
        name: What the baseline is called.
        source: A folder with merged tables, or with records, which are then merged.
        made_at: Now, in UTC, RFC 3339.
        force: Replace the baseline that has this name.

    Raises:
        UsageError: The name is not usable, or taken.
        NothingSelectedError: There is not one cell.
        StoreError: The tables are damaged, or the copy cannot be written; what was there before stays.
    """
    place = _place(results, name)
    if place.exists() and not force:
        next_step = "Choose another name, or replace it with --force: what was compared with it cannot be again then."
        raise UsageError(f"there is a baseline {name} already", next_step=next_step)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".", dir=place.parent) as aside:
            folder = Path(aside) / name
            folder.mkdir()
            _fill(folder, source)
            made = _described(folder, name, source, made_at)
            (folder / _FACTS).write_text(f"{json.dumps(to_json(made), indent=2, sort_keys=True)}\n", encoding="utf-8")
            for file in folder.iterdir():
                file.chmod(0o444)
            _put(folder, place)
    except OSError as error:
        raise StoreError(f"baseline {name} cannot be written to {place}: {error.strerror or error}") from None
    return made


def read_baseline(results: Path, name: str) -> Baseline:
    """Read the description of a baseline; :func:`verified_tables` also checks its tables.

    Raises:
        UsageError: There is none of that name.
        StoreError: It cannot be read.
    """
    place = _place(results, name)
    if not place.is_dir():
        there = ", ".join(names(results)) or "none"
        next_step = f"There is {there}. `kernel-matrix baseline set {name} FOLDER` makes one."
        raise UsageError(f"there is no baseline {name} in {baselines_folder(results)}", next_step=next_step)
    try:
        found = from_json(Baseline, read_object(place / _FACTS, follow_links=True))
        _check(found, name)
    except ValueError as error:
        raise _damaged(name, f"{_FACTS}: {error}") from None
    return found


def verified_tables(results: Path, name: str) -> tuple[Baseline, Path]:
    """Return a baseline and the folder of its tables, after every byte of them was checked.

    Raises:
        UsageError: There is none of that name.
        StoreError: The tables are not what was frozen.
    """
    found, place = read_baseline(results, name), _place(results, name)
    for file, digest in found.files.items():
        try:
            now = file_sha256(place / file)
        except OSError as error:
            raise _damaged(name, f"{file}: {error.strerror}") from None
        if now != digest:
            raise _damaged(name, f"{file} is not what was frozen")
    return found, place


def names(results: Path) -> list[str]:
    """Return the names of all baselines, in order."""
    folder = baselines_folder(results)
    if not folder.is_dir():
        return []
    return sorted(place.name for place in folder.iterdir() if place.is_dir() and _NAME.fullmatch(place.name))


def night_folder(results: Path, night: str, matrix: str = "") -> Path:
    """Return the folder of a night: its tables where they exist.

    Args:
        results: The folder that all results are in.
        night: Its name, such as ``2026-12-31``.
        matrix: Whose night it was; needed only where several matrices had one of that name.

    Raises:
        UsageError: There is none, or more than one.
    """
    if not is_night_name(night):
        raise UsageError(f"--night {night!r} is no night", next_step="A night is called by its date: 2026-12-31")
    found = sorted(place for place in results.glob(f"*/nights/{night}") if matrix in ("", place.parts[-3]))
    if len(found) == 1:
        tables = tables_of(found[0])
        return tables if (tables / "cells.parquet").is_file() else found[0]
    if found:
        whose = ", ".join(place.parts[-3] for place in found)
        raise UsageError(f"several matrices had a night {night}: {whose}", next_step="Say which: --matrix NAME")
    there = ", ".join(sorted(place.name for place in results.glob("*/nights/*") if place.is_dir())[-5:]) or "none"
    raise UsageError(f"there was no night {night} in {results}", next_step=f"The last ones: {there}.")


def _place(results: Path, name: str) -> Path:
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r:.80} is no name of a baseline", next_step="Use letters, digits, dots, dashes: release-1.2"
        )
    return baselines_folder(results) / name


def _fill(folder: Path, source: Path) -> None:
    if (source / "cells.parquet").is_file():
        for table in TABLES:
            file = source / f"{table}.parquet"
            if not file.is_file():
                raise StoreError(f"{file} does not exist", next_step=f"Merge again, with --out {source}.")
            shutil.copyfile(file, folder / file.name)
        return
    with tempfile.TemporaryDirectory(dir=folder.parent) as merged:
        for file in merge([source], Path(merged)).tables.values():
            shutil.move(file, folder / file.name)


def _described(folder: Path, name: str, source: Path, made_at: str) -> Baseline:
    cells = open_tables([folder]).cells
    said = cells.select(
        pl.col("record").n_unique().alias("records"),
        pl.col("cell_id").n_unique().alias("cells"),
        *(pl.col(column).cast(pl.String).drop_nulls().unique().sort().implode() for column in ("matrix", "gpu")),
    )
    try:
        row = said.collect(engine="streaming").row(0, named=True)
    except pl.exceptions.PolarsError as error:
        raise StoreError(f"{source} is damaged: {error}", next_step="Merge its records again.") from None
    if not row["cells"]:
        raise NothingSelectedError(f"{source} holds no cell", next_step="A baseline needs results: run first.")
    files = {f"{table}.parquet": file_sha256(folder / f"{table}.parquet") for table in sorted(TABLES)}
    return Baseline(
        name=name,
        made_at=made_at,
        made_from=str(source.resolve()),
        content_sha256=_content(files),
        files=files,
        records=row["records"],
        cells=row["cells"],
        matrices=tuple(row["matrix"]),
        gpus=tuple(row["gpu"]),
    )


def _content(files: Mapping[str, str]) -> str:
    lines = "".join(f"{digest}  {name}\n" for name, digest in sorted(files.items()))
    return hashlib.sha256(lines.encode()).hexdigest()


def _put(folder: Path, place: Path) -> None:
    """Rename ``folder`` to ``place``; remove what had that name only after that."""
    old = place.with_name(f".{place.name}.{secrets.token_hex(4)}.old")
    if place.exists():
        place.rename(old)
    try:
        folder.rename(place)
    except BaseException:
        if old.exists():
            old.rename(place)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _check(found: Baseline, name: str) -> None:
    if found.version != VERSION:
        raise ValueError(f"version {found.version}, this program reads {VERSION}")
    if found.name != name:
        raise ValueError(f"it is of baseline {found.name!r:.80}")
    if sorted(found.files) != sorted(f"{table}.parquet" for table in TABLES):
        raise ValueError(f"it lists other tables than {', '.join(TABLES)}")
    if found.content_sha256 != _content(found.files):
        raise ValueError("its digests contradict each other")


def _damaged(name: str, why: str) -> StoreError:
    next_step = f"Set it anew from where it came from: kernel-matrix baseline set {name} FOLDER --force"
    return StoreError(f"baseline {name} is damaged: {why}", next_step=next_step)
