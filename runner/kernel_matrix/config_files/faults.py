"""Faults of a configuration file, and helpers for their messages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kernel_matrix.errors import suggestion
from kernel_matrix.toml_text import KeyPath

_LONGEST_VALUE = 60  # characters of a quoted value, so that a message stays on one line


@dataclass(frozen=True, slots=True)
class ConfigFault:
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


def unknown_word(word: str, known: Sequence[str]) -> str:
    """Say that ``word`` is not one of ``known``, and which one it may be."""
    return f"{quote(word)} is not known; allowed: {listed(known)}{suggestion(word, known)}"


def listed(allowed: Iterable[object]) -> str:
    """Join ``allowed`` as ``a, b, c``."""
    return ", ".join(map(str, allowed))
