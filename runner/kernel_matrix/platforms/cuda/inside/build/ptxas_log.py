"""Spills of each kernel from the output of ``ptxas -v``, which is their only source."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Dict, Optional, Tuple

_ENTRY = re.compile(r"Compiling entry function '(?P<name>[^']+)' for 'sm_(?P<arch>\d+)[a-z]?'")
_PROPERTIES = re.compile(r"Function properties for (?P<name>\S+)")
_SPILLS = re.compile(r"(?P<store>\d+) bytes spill stores, (?P<load>\d+) bytes spill loads")


@dataclass(frozen=True)
class Spills:
    """Bytes per thread that the code moves between registers and memory, each instruction counted once."""

    store_bytes: int = 0
    load_bytes: int = 0


def spills_of(log: str) -> Dict[Tuple[str, int], Spills]:
    """Return (mangled name, compute capability × 10) → spills of that kernel in the log."""
    found: Dict[Tuple[str, int], Spills] = {}
    entry: Optional[Tuple[str, int]] = None
    function = ""
    for line in log.splitlines():
        begins, properties, spills = _ENTRY.search(line), _PROPERTIES.search(line), _SPILLS.search(line)
        if begins:
            entry = (begins["name"], int(begins["arch"]))
        elif properties:
            function = properties["name"]
        elif spills and entry is not None and function == entry[0]:  # the log also has lines for functions it calls
            found[entry] = Spills(int(spills["store"]), int(spills["load"]))
    return found
