"""What compilers leave for the process that runs a candidate, as one archive.

Only the builder packs it and only the candidate's own process unpacks it: those between them take it as it is.
"""

from __future__ import annotations

import os
import tarfile
import tempfile
from pathlib import Path
from typing import IO, Dict, Iterator, List, Tuple

from kernel_matrix.inside.build.nvcc_wrapper import stand_in

PLACES: Dict[str, str] = {"extensions": "TORCH_EXTENSIONS_DIR", "triton": "TRITON_CACHE_DIR"}
"""Folder in the archive → the setting that says where a compiler keeps it."""

MTIME_HEADER = "KERNELMATRIX.mtime_ns"
"""PAX header: a file's modification time in nanoseconds."""


def folders() -> List[Tuple[str, Path]]:
    """(name in the archive, folder) of each place that is set here."""
    return [(name, Path(os.environ[setting])) for name, setting in PLACES.items() if os.environ.get(setting)]


def pack(file: IO[bytes]) -> int:
    """Write all that lies in the folders to ``file``; returns how many entries: without any, nothing is written."""
    entries = list(_entries())
    if entries:
        with tarfile.open(fileobj=file, mode="w|", format=tarfile.PAX_FORMAT) as archive:
            for path, name in entries:
                _add(archive, path, name)
    return len(entries)


def _entries() -> Iterator[Tuple[Path, str]]:
    for name, folder in folders():
        for path in sorted(folder.rglob("*")):
            yield path, f"{name}/{path.relative_to(folder)}"


def _add(archive: tarfile.TarFile, path: Path, name: str) -> None:
    """Add one file with its modification time to the nanosecond, which a tar alone rounds.

    ninja compares these times with its log: a rounded one makes it compile everything again.
    """
    entry = archive.gettarinfo(str(path), arcname=name)
    entry.pax_headers = {MTIME_HEADER: str(path.lstat().st_mtime_ns)}
    if entry.isreg():
        with path.open("rb") as file:
            archive.addfile(entry, file)
    else:
        archive.addfile(entry)


def unpack(artifact: Path) -> None:
    """Put everything where its compiler will look for it, and name the compiler that made it.

    The folders must be missing or empty, and on one file system.
    """
    targets = folders()
    for _, target in targets:
        target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=targets[0][1].parent) as aside:
        _extract(artifact, Path(aside))
        for name, target in targets:
            if (Path(aside) / name).is_dir():
                (Path(aside) / name).rename(target)
    os.environ.update(stand_in())


def _extract(artifact: Path, folder: Path) -> None:
    with tarfile.open(artifact) as archive:
        # The candidate's own files, inside the candidate's own container: there is nobody to be protected from them.
        archive.extraction_filter = getattr(tarfile, "fully_trusted_filter", None)
        archive.extractall(folder)  # noqa: S202  # see above
        for entry in archive.getmembers():
            exact = int(entry.pax_headers.get(MTIME_HEADER, 0))
            if exact and not entry.issym():
                os.utime(folder / entry.name, ns=(exact, exact))
