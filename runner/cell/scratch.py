"""The folder of one run's temporary files, found again and removed when its runner was killed."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from runner.owner import owner_alive, owner_token

_PREFIX = "kernel-matrix-run-"
_OWNER = "owner"


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A new folder that other users may pass through; removed whatever happens."""
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    try:
        (folder / _OWNER).write_text(owner_token(), encoding="ascii")
        folder.chmod(0o711)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def scratch_leftovers() -> Sequence[str]:
    """The folders of dead runners, one line each; removes nothing."""
    return [_epitaph(folder) for folder in _orphans()]


def sweep_scratch() -> Sequence[str]:
    """Remove the folders of dead runners; returns one line per folder removed."""
    orphans = _orphans()
    for folder in orphans:
        shutil.rmtree(folder, ignore_errors=True)
    return [_epitaph(folder) for folder in orphans]


def _orphans() -> list[Path]:
    return [folder for folder in sorted(Path(tempfile.gettempdir()).glob(f"{_PREFIX}*")) if _is_orphan(folder)]


def _is_orphan(folder: Path) -> bool:
    try:
        info = folder.lstat()
        ours = stat.S_ISDIR(info.st_mode) and info.st_uid == os.geteuid()
        return ours and not owner_alive((folder / _OWNER).read_text(encoding="ascii"))
    except OSError:
        return False  # being made or removed at this moment


def _epitaph(folder: Path) -> str:
    return f"folder {folder} of a run whose runner is gone"
