"""Libraries mapped into this process."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Optional

_MAPS = Path("/proc/self/maps")


def mapped_library(name: str) -> Optional[Path]:
    """Return the real path of the first mapped file whose name matches the regular expression ``name``, or None."""
    for line in _MAPS.read_text().splitlines():
        path = line.split(maxsplit=5)[5:]
        if path and re.fullmatch(name, Path(path[0]).name):
            return Path(path[0]).resolve()
    return None
