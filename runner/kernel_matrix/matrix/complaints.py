"""Faults of a matrix file, and helpers for their messages."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kernel_matrix.matrix.toml_lines import KeyPath

_LONGEST_VALUE = 60  # characters of a quoted value, so that a message stays on one line


@dataclass(frozen=True, slots=True)
class MatrixFault:
    """One fault of the file."""

    path: KeyPath
    """The faulty key, or the missing one."""
    text: str
    """One line: the fault, the allowed values and the closest match."""
    usable: bool = False
    """Later checks can still read the value."""


def quote(value: object) -> str:
    """Return ``repr(value)``, shortened to fit on one line."""
    text = repr(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"


def listed(allowed: Iterable[object]) -> str:
    """Join ``allowed`` as ``a, b, c``."""
    return ", ".join(map(str, allowed))


def closest(word: object, allowed: Sequence[str]) -> str | None:
    """Return the member of ``allowed`` that is closest to ``word``, or ``None`` if none is close."""
    if not isinstance(word, str):
        return None
    by_lower_case = {name.lower(): name for name in reversed(allowed)}
    close = difflib.get_close_matches(word.lower(), by_lower_case, n=1)
    return by_lower_case[close[0]] if close else None


def suggestion(word: object, allowed: Sequence[str]) -> str:
    """Return ``; did you mean 'x'?``, or an empty text if none of ``allowed`` is close."""
    close = closest(word, allowed)
    return f"; did you mean {close!r}?" if close else ""
