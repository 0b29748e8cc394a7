"""Folder of one run's temporary files, which a later run removes if its runner was killed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from kernel_matrix.hosts.process_token import orphaned_folders, own_folder

_PREFIX = "kernel-matrix-run-"


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Provide a new folder that other users may pass through, and remove it at the end."""
    with own_folder(_PREFIX) as folder:
        folder.chmod(0o711)
        yield folder


def scratch_leftovers() -> Sequence[str]:
    """Return one line for each folder of a dead runner; removes nothing."""
    return [_epitaph(folder) for folder in orphaned_folders(_PREFIX)]


def sweep_scratch() -> Sequence[str]:
    """Remove the folders of dead runners; return one line for each."""
    orphans = orphaned_folders(_PREFIX)
    for folder in orphans:
        shutil.rmtree(folder, ignore_errors=True)
    return [_epitaph(folder) for folder in orphans]


def _epitaph(folder: Path) -> str:
    return f"folder {folder} of a run whose runner is gone"
