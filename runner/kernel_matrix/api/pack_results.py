"""Results as one file, and back."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kernel_matrix.errors import KernelMatrixError, StoreError, UsageError
from kernel_matrix.matrix.load import load_matrix
from kernel_matrix.report.source_texts import matrices_of
from kernel_matrix.results.fingerprints import Salter
from kernel_matrix.results.packed_set import ENDING, LOCK, MATRIX, SetDescription, unpack_set
from kernel_matrix.results.packing import pack_folder
from kernel_matrix.results.record_files import find, read_runs
from kernel_matrix.results.store import replace_document
from kernel_matrix.untrusted_json import UntrustedJsonError, read_bytes

__all__ = ["ENDING", "PackedResults", "SetDescription", "pack_results", "unpack_results"]

_SALT_BYTES: Final = 32
_LEAST_SALT_BYTES: Final = 16  # fewer could be guessed
_MOST_SALT_BYTES: Final = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedResults:
    """Results that were packed."""

    file: Path
    size_bytes: int
    description: SetDescription
    """What is in the file: its ``set.json``."""


def pack_results(
    results: str | Path = "results",
    out: str | Path | None = None,
    *,
    traces: bool = False,
    with_fingerprints: bool = False,
    salt_file: str | Path | None = None,
    matrix: str | Path | None = None,
    lock: str | Path | None = None,
    force: bool = False,
) -> PackedResults:
    """Pack a result folder into one file, which everything that reads result folders reads too.

    Args:
        results: The result folder.
        out: The file; by default the folder's name with :data:`ENDING`, in the working directory.
        traces: Also pack the telemetry of records.
        with_fingerprints: Keep what identifies machines and devices; else salted hashes stand for it.
        salt_file: A file with the salt, for sets that are to be joined; by default the salt is random and not kept.
        matrix: The matrix file that the runs were made with; by default that which they name, if it is as it was.
        lock: The images lock; by default that of the matrix.
        force: Replace ``out`` where it exists.

    Raises:
        UsageError: There is no such folder, matrix, lock or salt, or ``out`` exists.
        NothingSelectedError: There is no valid record.
        StoreError: The file cannot be written.
    """
    folder = Path(results)
    if with_fingerprints and salt_file is not None:
        raise UsageError("there is nothing to salt with --with-fingerprints", next_step="Leave out one of the two.")
    file = Path(out) if out is not None else Path(f"{folder.resolve().name}{ENDING}")
    if file.exists() and not force:
        raise UsageError(
            f"{file} exists already", next_step="Name another file with --out, or replace it with --force."
        )
    salt = None if with_fingerprints else _read_salt(salt_file)
    extra = _matrix_files(folder, matrix, lock, salt)
    description, data = pack_folder(folder, traces=traces, salt=salt, extra=extra)
    replace_document(file, data)
    return PackedResults(file=file, size_bytes=len(data), description=description)


def unpack_results(file: str | Path, folder: str | Path) -> SetDescription:
    """Check packed results, and unpack them into a result folder.

    Args:
        file: The packed results. They are checked like any file of unknown origin.
        folder: A folder that is new or empty. If the file is refused, it stays so.

    Returns:
        The description of what was unpacked.

    Raises:
        UsageError: There is no such file, or the folder is not empty.
        StoreError: The file is refused, or the folder cannot be written.
    """
    packed, target = Path(file), Path(folder)
    if not packed.is_file():
        raise UsageError(f"there is no file {packed}", next_step="Name a file that `kernel-matrix pack` wrote.")
    try:
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise UsageError(f"{target} is not an empty folder", next_step="Name a new folder.")
        with _made(target), tempfile.TemporaryDirectory(prefix=".unpacking-", dir=target) as aside:
            description = unpack_set(packed, Path(aside))
            for part in Path(aside).iterdir():
                part.rename(target / part.name)
    except OSError as error:
        raise StoreError(f"{target} cannot be written: {error.strerror}", next_step="Name another folder.") from error
    return description


@contextmanager
def _made(folder: Path) -> Iterator[None]:
    """Make a folder; after an error in the context it is removed again, unless it was there before."""
    was_there = folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        if not was_there:
            with suppress(OSError):
                folder.rmdir()
        raise


def _read_salt(file: str | Path | None) -> bytes:
    if file is None:
        return os.urandom(_SALT_BYTES)
    salt = _read(Path(file), _MOST_SALT_BYTES)
    if len(salt) < _LEAST_SALT_BYTES:
        next_step = f"Make one: head -c {_SALT_BYTES} /dev/urandom > {file}"
        raise UsageError(f"{file} has {len(salt)} bytes; a salt has at least {_LEAST_SALT_BYTES}", next_step=next_step)
    return salt


def _matrix_files(
    folder: Path, matrix: str | Path | None, lock: str | Path | None, salt: bytes | None
) -> Mapping[str, bytes]:
    """Return the matrix and its lock, by their names in a packed set."""
    runs, _ = read_runs(find([folder])[1])
    digests = {run["matrix_sha256"] for run in runs.values()}
    files = {}
    path = Path(matrix) if matrix is not None else _named_matrix(folder, digests, salt)
    if path is not None:
        files[MATRIX] = _read(path)
        if hashlib.sha256(files[MATRIX]).hexdigest() not in digests:
            next_step = "Name the file as it was then, or leave --matrix out."
            raise UsageError(f"no run in {folder} was made with {path} as it is now", next_step=next_step)
    if lock is None and path is not None:
        with suppress(KernelMatrixError):  # it may need an extension that is not here
            lock = load_matrix(path).lock_path
        lock = lock if lock is not None and Path(lock).is_file() else None
    if lock is not None:
        files[LOCK] = _read(Path(lock))
    return files


def _named_matrix(folder: Path, digests: set[str], salt: bytes | None) -> Path | None:
    """Return the one matrix that the runs name, if it is as it was and, where that counts, has no user's name."""
    found = []
    for path in matrices_of([folder]):
        data = _read(path)
        texts = [data.decode(errors="replace")]
        names_user = salt is not None and Salter(salt).salted_texts(texts) != texts
        if hashlib.sha256(data).hexdigest() in digests and not names_user:
            found.append(path)
    return found[0] if len(found) == 1 else None


def _read(path: Path, max_bytes: int = 16 << 20) -> bytes:
    try:
        return read_bytes(path, max_bytes=max_bytes, follow_links=True)
    except UntrustedJsonError as error:
        raise UsageError(f"{path}: {error.reason}", next_step="Name a file that can be read.") from None
