"""Folders of this user, where the XDG base directories say that they belong."""

from __future__ import annotations

import os
from pathlib import Path


def cache_root() -> Path:
    """Return the folder for downloads, builds and images, ``$XDG_CACHE_HOME/kernel-matrix``."""
    return _folder("XDG_CACHE_HOME", ".cache")


def state_root() -> Path:
    """Return the folder for what ``try`` and ``platform prove`` measured last, ``$XDG_STATE_HOME/kernel-matrix``."""
    return _folder("XDG_STATE_HOME", ".local/state")


def _folder(variable: str, default: str) -> Path:
    return Path(os.environ.get(variable) or Path.home() / default) / "kernel-matrix"
