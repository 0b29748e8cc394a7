"""Case-sensitive globs of rules and selections: ``*``, ``?`` and ``[…]``."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any


def one_or_many(value: Any) -> tuple[Any, ...]:
    """Return a value or a list from the file as a tuple."""
    return tuple(value) if isinstance(value, list) else (value,)


def matches(value: str, globs: Sequence[str]) -> bool:
    """Return True if any of ``globs`` matches ``value``; no globs match everything."""
    return not globs or any(fnmatchcase(value, glob) for glob in globs)


def is_plain(glob: str) -> bool:
    """Return True if ``glob`` has no wildcards, so that it matches only itself."""
    return not set("*?[") & set(glob)


def is_within(globs: Sequence[str], wider: Sequence[str]) -> bool:
    """Return True if ``wider`` surely match everything that ``globs`` match."""
    return all(any(_is_narrower(glob, other) for other in wider or ("*",)) for glob in globs or ("*",))


def _is_narrower(glob: str, wider: str) -> bool:
    # A wider glob with "*" only can be matched against the other glob as plain text: "*" also covers its wildcards.
    comparable = "[" not in glob and not set("?[") & set(wider)
    return wider in (glob, "*") or (comparable and fnmatchcase(glob, wider))
