"""The folder of one run's temporary files, found again and removed when its runner was killed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from kernel_matrix.hosts.process_token import orphaned_folders, own_folder

_PREFIX = "kernel-matrix-run-"


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A new folder that other users may pass through; removed whatever happens."""
    with own_folder(_PREFIX) as folder:
        folder.chmod(0o711)
        yield folder


def scratch_leftovers() -> Sequence[str]:
    """The folders of dead runners, one line each; removes nothing."""
    return [_epitaph(folder) for folder in orphaned_folders(_PREFIX)]


def sweep_scratch() -> Sequence[str]:
    """Remove the folders of dead runners; returns one line per folder removed."""
    orphans = orphaned_folders(_PREFIX)
    for folder in orphans:
        shutil.rmtree(folder, ignore_errors=True)
    return [_epitaph(folder) for folder in orphans]


def _epitaph(folder: Path) -> str:
    return f"folder {folder} of a run whose runner is gone"
