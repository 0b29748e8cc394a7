"""The folder of this user's cache."""

from __future__ import annotations

import os
from pathlib import Path


def cache_root() -> Path:
    """Return the folder for downloads, builds and images, ``$XDG_CACHE_HOME/kernel-matrix``."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "kernel-matrix"
