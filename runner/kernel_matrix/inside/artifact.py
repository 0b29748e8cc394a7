"""Archive of a candidate's compiled code, from the builder to the process that runs the candidate.

Only the candidate's own process unpacks it; everything between treats it as an opaque file.
"""

from __future__ import annotations

import os
import tarfile
import tempfile
from pathlib import Path
from typing import IO, Dict, List, Tuple

# Folder in the archive → environment variable with the compiler's folder.
PLACES: Dict[str, str] = {"extensions": "TORCH_EXTENSIONS_DIR", "triton": "TRITON_CACHE_DIR"}

MTIME_HEADER = "KERNELMATRIX.mtime_ns"  # PAX header: a file's modification time in nanoseconds


class ArtifactError(Exception):
    """The artifact cannot be unpacked."""


def folders() -> List[Tuple[str, Path]]:
    """Return (name in the archive, folder) for each variable of :data:`PLACES` that is set."""
    return [(name, Path(os.environ[setting])) for name, setting in PLACES.items() if os.environ.get(setting)]


def pack(file: IO[bytes]) -> int:
    """Write the folders' content to ``file``, or nothing if they are empty; return the number of entries."""
    entries = [
        (path, f"{name}/{path.relative_to(folder)}") for name, folder in folders() for path in sorted(folder.rglob("*"))
    ]
    if entries:
        with tarfile.open(fileobj=file, mode="w|", format=tarfile.PAX_FORMAT) as archive:
            for path, name in entries:
                _add(archive, path, name)
    return len(entries)


def _add(archive: tarfile.TarFile, path: Path, name: str) -> None:
    """Add one file with its modification time in nanoseconds, which tar itself rounds.

    ninja compares these times with its log, and would compile everything again if they were rounded.
    """
    entry = archive.gettarinfo(str(path), arcname=name)
    entry.pax_headers = {MTIME_HEADER: str(path.lstat().st_mtime_ns)}
    if entry.isreg():
        with path.open("rb") as file:
            archive.addfile(entry, file)
    else:
        archive.addfile(entry)


def unpack(artifact: Path) -> None:
    """Unpack the artifact into the compilers' folders.

    The folders must be missing or empty, and on one file system.

    Raises:
        ArtifactError: It is damaged, too large, or holds what cannot be written.
    """
    targets = folders()
    for _, target in targets:
        target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=targets[0][1].parent) as aside:
        try:
            _extract(artifact, Path(aside))
        except Exception as error:  # the candidate's build wrote it, so it may be damaged in any way
            reason = f"{type(error).__name__}: {error}"
            raise ArtifactError(f"the candidate's compiled code cannot be unpacked: {reason}") from error
        for name, target in targets:
            if (Path(aside) / name).is_dir():
                (Path(aside) / name).rename(target)


def _extract(artifact: Path, folder: Path) -> None:
    with tarfile.open(artifact) as archive:
        # These are the candidate's own files in its own container, so they can only harm the candidate.
        archive.extraction_filter = getattr(tarfile, "fully_trusted_filter", None)
        archive.extractall(folder)  # noqa: S202  # see above
        for entry in archive.getmembers():
            exact = int(entry.pax_headers.get(MTIME_HEADER, 0))
            if exact and not entry.issym():
                os.utime(folder / entry.name, ns=(exact, exact))
