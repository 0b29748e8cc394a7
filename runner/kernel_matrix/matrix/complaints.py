"""What is wrong with a matrix file: one complaint per fault, and the words they share."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kernel_matrix.matrix.toml_lines import KeyPath

_LONGEST_VALUE = 60


@dataclass(frozen=True, slots=True)
class MatrixFault:
    """One fault of the file."""

    path: KeyPath
    """The key at fault; may name a key that is missing."""
    text: str
    """What is wrong, what is allowed, and the closest match; one line."""
    usable: bool = False
    """True: later checks can still read the value."""


def quote(value: object) -> str:
    """``value`` on one line, shortened."""
    text = repr(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"


def listed(allowed: Iterable[object]) -> str:
    """``a, b, c``."""
    return ", ".join(map(str, allowed))


def closest(word: object, allowed: Sequence[str]) -> str | None:
    """The one of ``allowed`` that ``word`` was probably meant to be, if any is close."""
    if not isinstance(word, str):
        return None
    by_lower_case = {name.lower(): name for name in reversed(allowed)}
    close = difflib.get_close_matches(word.lower(), by_lower_case, n=1)
    return by_lower_case[close[0]] if close else None


def suggestion(word: object, allowed: Sequence[str]) -> str:
    """``; did you mean 'x'?``, or nothing when none of ``allowed`` is close."""
    close = closest(word, allowed)
    return f"; did you mean {close!r}?" if close else ""
