"""What ``ptxas -v`` says of each kernel, for nowhere else are spills told."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Dict, Optional, Tuple

_ENTRY = re.compile(r"Compiling entry function '(?P<name>[^']+)' for 'sm_(?P<arch>\d+)[a-z]?'")
_PROPERTIES = re.compile(r"Function properties for (?P<name>\S+)")
_SPILLS = re.compile(r"(?P<store>\d+) bytes spill stores, (?P<load>\d+) bytes spill loads")


@dataclass(frozen=True)
class Spills:
    """Bytes per thread, counted once per instruction in the code, that went to memory for want of registers."""

    store_bytes: int = 0
    load_bytes: int = 0


def spills_of(log: str) -> Dict[Tuple[str, int], Spills]:
    """(mangled name, compute capability × 10) → what the log says of that kernel."""
    found: Dict[Tuple[str, int], Spills] = {}
    entry: Optional[Tuple[str, int]] = None
    told_of = ""
    for line in log.splitlines():
        begins, properties, spills = _ENTRY.search(line), _PROPERTIES.search(line), _SPILLS.search(line)
        if begins:
            entry = (begins["name"], int(begins["arch"]))
        elif properties:
            told_of = properties["name"]
        elif spills and entry is not None and told_of == entry[0]:  # functions that it calls are told of likewise
            found[entry] = Spills(int(spills["store"]), int(spills["load"]))
    return found
