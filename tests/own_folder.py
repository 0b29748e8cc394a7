"""A folder in which a daemon may mount things."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def own_folder(prefix: str) -> Iterator[Path]:
    """Make a folder with a short path, for sockets; at the end unmount what lies in it, and remove it."""
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    try:
        yield folder
    finally:
        for mount in _mounts_below(folder):
            with suppress(subprocess.CalledProcessError):
                subprocess.run(("umount", "--lazy", mount), check=True, capture_output=True)
        shutil.rmtree(folder, ignore_errors=True)


def _mounts_below(folder: Path) -> list[str]:
    points = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    return sorted((point for point in points if point.startswith(f"{folder}/")), reverse=True)
