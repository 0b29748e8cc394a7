"""What a protocol asks for, by name; the packages of other people are compared with it."""

from __future__ import annotations

from typing import Tuple


def protocol_members(protocol: type) -> Tuple[str, ...]:
    """Return the names of all attributes and methods that ``protocol`` asks for."""
    annotated = protocol.__annotations__
    return (*annotated, *(name for name in vars(protocol) if not name.startswith("_") and name not in annotated))
