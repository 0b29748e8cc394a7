"""Archive of a candidate's compiled code, from the builder to the process that runs the candidate.

It is a tar without compression, of regular files and folders alone, so that it unpacks to no more than its own size.
Only the candidate's own process unpacks it; everything between treats it as an opaque file.
"""

from __future__ import annotations

import os
import shutil
import tarfile
import tempfile
from pathlib import Path
from typing import IO, Dict, List, Tuple

# Folder in the archive → environment variable with the compiler's folder.
PLACES: Dict[str, str] = {"extensions": "TORCH_EXTENSIONS_DIR", "triton": "TRITON_CACHE_DIR"}

MTIME_HEADER = "KERNELMATRIX.mtime_ns"  # PAX header: a file's modification time in nanoseconds

MAX_ENTRIES = 65_536
"""Files and folders of an artifact; compilers make about ten for each kernel."""

_PERMISSIONS = 0o777  # without the set-uid, set-gid and sticky bits


class ArtifactError(Exception):
    """The artifact cannot be unpacked."""


def folders() -> List[Tuple[str, Path]]:
    """Return (name in the archive, folder) for each variable of :data:`PLACES` that is set."""
    return [(name, Path(os.environ[setting])) for name, setting in PLACES.items() if os.environ.get(setting)]


def pack(file: IO[bytes]) -> int:
    """Write the folders' content to ``file``, or nothing if they are empty; return the number of entries.

    A symbolic link to a file becomes a copy of it; links to folders, and what is neither file nor folder, are left out.
    """
    entries = [
        (path, f"{name}/{path.relative_to(folder)}")
        for name, folder in folders()
        for path in sorted(folder.rglob("*"))
        if path.is_file() or (path.is_dir() and not path.is_symlink())
    ]
    if entries:
        with tarfile.open(fileobj=file, mode="w|", format=tarfile.PAX_FORMAT, dereference=True) as archive:
            for path, name in entries:
                _add(archive, path, name)
    return len(entries)


def _add(archive: tarfile.TarFile, path: Path, name: str) -> None:
    """Add one file with its modification time in nanoseconds, which tar itself rounds.

    ninja compares these times with its log, and would compile everything again if they were rounded.
    """
    entry = archive.gettarinfo(str(path), arcname=name)
    entry.pax_headers = {MTIME_HEADER: str(path.stat().st_mtime_ns)}
    if entry.isreg():
        with path.open("rb") as file:
            archive.addfile(entry, file)
    else:
        archive.addfile(entry)


def unpack(artifact: Path) -> None:
    """Unpack the artifact into the compilers' folders.

    The folders must be missing or empty, and on one file system.

    Raises:
        ArtifactError: It is not an archive as :func:`pack` makes it, or holds what cannot be written.
    """
    targets = folders()
    try:
        with tarfile.open(artifact, "r:") as archive:
            entries = _checked(archive, artifact.stat().st_size)
            for _, target in targets:
                target.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=targets[0][1].parent) as aside:
                _extract(archive, entries, Path(aside))
                for name, target in targets:
                    if (Path(aside) / name).is_dir():
                        (Path(aside) / name).rename(target)
    except Exception as error:  # the candidate's build wrote it, so it may be damaged in any way
        reason = f"{type(error).__name__}: {error}"
        raise ArtifactError(f"the candidate's compiled code cannot be unpacked: {reason}") from error


def _checked(archive: tarfile.TarFile, size: int) -> List[tarfile.TarInfo]:
    """Return the archive's entries, if all of them are files and folders below :data:`PLACES`.

    Args:
        archive: The archive.
        size: Its size in bytes, which its files must not exceed together.

    Raises:
        ValueError: If they are not.
    """
    entries: List[tarfile.TarInfo] = []
    total = 0
    for entry in archive:
        entries.append(entry)
        total += entry.size
        parts = entry.name.split("/")
        if parts[0] not in PLACES or any(part in ("", ".", "..") for part in parts):
            raise ValueError(f"an entry with the name {entry.name[:100]!r}")
        if entry.issparse() or entry.size < 0 or not (entry.isdir() or entry.isreg()):
            raise ValueError(f"{entry.name[:100]!r} is neither a plain file nor a folder")
        if total > size or len(entries) > MAX_ENTRIES:
            raise ValueError(f"more than {MAX_ENTRIES} entries, or more bytes than the archive has")
    return entries


def _extract(archive: tarfile.TarFile, entries: List[tarfile.TarInfo], folder: Path) -> None:
    for entry in entries:
        path = folder / entry.name
        path.parent.mkdir(parents=True, exist_ok=True)
        content = archive.extractfile(entry)
        if content is None:
            path.mkdir(exist_ok=True)
        else:
            with content, path.open("xb") as file:
                shutil.copyfileobj(content, file)
                os.fchmod(file.fileno(), entry.mode & _PERMISSIONS)
    for entry in reversed(entries):  # folders after what lies in them
        exact = int(entry.pax_headers.get(MTIME_HEADER, 0))
        if exact:
            os.utime(folder / entry.name, ns=(exact, exact))
