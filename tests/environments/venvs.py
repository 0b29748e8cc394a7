"""Virtual environments that tests make."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def make_venv(folder: Path) -> None:
    """Make an environment of this Python with no packages."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)


def packages_of(folder: Path) -> Path:
    """Return the folder of an environment's packages."""
    return next(folder.glob("lib/python3*/site-packages"))
