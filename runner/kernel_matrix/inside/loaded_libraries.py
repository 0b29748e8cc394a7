"""Libraries that this process has loaded, whoever loaded them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Optional

_MAPS = Path("/proc/self/maps")


def mapped_library(name: str) -> Optional[Path]:
    """Real path of the first mapped file whose whole name matches the regular expression ``name``; null: none does."""
    for line in _MAPS.read_text().splitlines():
        path = line.split(maxsplit=5)[5:]
        if path and re.fullmatch(name, Path(path[0]).name):
            return Path(path[0]).resolve()
    return None
