"""Folders, files and sockets on this host that a process of any user inside is to reach."""

from __future__ import annotations

import shutil
import socket
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from kernel_matrix.inside.wire import short_name


@contextmanager
def folders_for_all(parent: Path, prefix: str, *names: str) -> Iterator[tuple[Path, ...]]:
    """New folders with these names in one of their own below ``parent``; removed whatever happens."""
    root = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    try:
        root.chmod(0o711)
        folders = tuple(root / name for name in names)
        for folder in folders:
            make_for_all(folder)
        yield folders
    finally:
        shutil.rmtree(root, ignore_errors=True)


def make_for_all(folder: Path) -> None:
    """Make ``folder``, whatever this process lets others do by default."""
    folder.mkdir()
    folder.chmod(0o755)


def write_for_all(files: Mapping[str, bytes], folder: Path) -> None:
    """Write ``files``, name → content, into ``folder``: to be read, and no more."""
    for name, content in files.items():
        (folder / name).write_bytes(content)
        (folder / name).chmod(0o444)


@contextmanager
def listening_for_all(path: Path) -> Iterator[socket.socket]:
    """A listening socket at ``path`` that any user may connect to; a new one each time."""
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        with short_name(path) as name:
            listener.bind(name)
        path.chmod(0o666)
        listener.listen(1)
        yield listener
