"""Folders for matrices that this program writes itself, and the text of their values."""

from __future__ import annotations

import json
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kernel_matrix.errors import UsageError
from kernel_matrix.user_folders import state_root


@contextmanager
def newest_folder(name: Path) -> Iterator[Path]:
    """Make a folder below ``name`` in this user's state; it replaces the earlier ones unless an exception is raised."""
    parent = state_root() / name
    folder = parent / secrets.token_hex(4)
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        what = f"{parent} cannot be written: {error.strerror}"
        raise UsageError(what, next_step="set XDG_STATE_HOME to a folder that can be written") from None
    try:
        yield folder
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    for other in parent.iterdir():
        if other != folder:
            shutil.rmtree(other, ignore_errors=True)


def quoted(text: str) -> str:
    """Return a TOML string."""
    return json.dumps(text, ensure_ascii=False)
