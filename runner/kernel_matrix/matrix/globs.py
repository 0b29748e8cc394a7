"""Globs as rules and selections write them: ``*``, ``?`` and ``[…]``, upper and lower case differ."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any


def one_or_many(value: Any) -> tuple[Any, ...]:
    """What the file gives as one value or a list, as a tuple."""
    return tuple(value) if isinstance(value, list) else (value,)


def matches(value: str, globs: Sequence[str]) -> bool:
    """Whether any of ``globs`` matches ``value``; no globs match everything."""
    return not globs or any(fnmatchcase(value, glob) for glob in globs)


def is_plain(glob: str) -> bool:
    """Whether ``glob`` matches nothing but itself."""
    return not set("*?[") & set(glob)


def is_within(globs: Sequence[str], wider: Sequence[str]) -> bool:
    """Whether whatever ``globs`` match, ``wider`` match too; says no when in doubt."""
    return all(any(_is_narrower(glob, other) for other in wider or ("*",)) for glob in globs or ("*",))


def _is_narrower(glob: str, wider: str) -> bool:
    # Without sets of characters, a wider glob may read the other as text: its "*" swallow the other's wildcards whole.
    readable = "[" not in glob and not set("?[") & set(wider)
    return wider in (glob, "*") or (readable and fnmatchcase(glob, wider))
