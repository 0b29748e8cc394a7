"""The folder of one run's temporary files, found again and removed when its runner was killed."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from runner.engines.owner import owner_alive, owner_token

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


def sweep_scratch() -> Sequence[str]:
    """Remove the folders of dead runners; returns one line per folder removed."""
    folders = sorted(Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"))
    return [f"folder {folder} of a run whose runner is gone" for folder in folders if _remove_if_orphan(folder)]


def _remove_if_orphan(folder: Path) -> bool:
    try:
        info = folder.lstat()
        ours = stat.S_ISDIR(info.st_mode) and info.st_uid == os.geteuid()
        if not ours or owner_alive((folder / _OWNER).read_text(encoding="ascii")):
            return False
    except OSError:
        return False  # being made or removed at this moment
    shutil.rmtree(folder, ignore_errors=True)
    return True
