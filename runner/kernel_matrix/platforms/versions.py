"""Versions as tuples of numbers."""

from __future__ import annotations

import re

Version = tuple[int, ...]
"""Leading numbers of a version: ``12.8`` is ``(12, 8)``."""


def parse_version(text: str | None) -> Version | None:
    """Return the leading numbers of ``text`` without a local part (``2.13.0+cpu``); ``None`` if there are none."""
    found = re.match(r"\d+(?:\.\d+)*", text or "")
    return tuple(int(number) for number in found.group().split(".")) if found else None


def is_older(version: str, than: str) -> bool:
    """Return whether ``version`` is older than ``than``; False if one of them has no numbers."""
    mine, other = parse_version(version), parse_version(than)
    return mine is not None and other is not None and mine < other


def is_same_minor(one: str, other: str) -> bool:
    """Return whether the first two numbers of two versions are equal: 7.2.4 and 7.2."""
    mine, theirs = parse_version(one), parse_version(other)
    return mine is not None and theirs is not None and mine[:2] == theirs[:2]


def is_between(version: str, first: str, before: str) -> bool:
    """Return whether ``version`` is ``first`` or newer, and older than ``before`` unless that is empty."""
    found, end = parse_version(version), parse_version(before)
    return found is not None and found >= (parse_version(first) or ()) and (not end or found < end)
