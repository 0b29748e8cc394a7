"""Accepted regressions: known ones, each with a reason and the last day on which it is accepted.

::

    [[accept]]
    problem = "softmax*"
    candidate = "*/triton_*"
    until = 2026-12-31
    reason = "driver 580 spills more; reported upstream"
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

from kernel_matrix.errors import UsageError
from kernel_matrix.toml_text import TomlSyntaxError, parse_toml

GLOBS: Final = ("problem", "candidate", "gpu", "toolchain", "dtype")
"""Keys that an entry may match by: at least one, and all given ones must match."""
_FORM: Final = 'an entry reads [[accept]] problem = "GLOB", candidate = "GLOB", until = 2026-12-31, reason = "…"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """One accepted regression."""

    globs: Mapping[str, str]
    """Name of :data:`GLOBS` → glob."""
    until: date
    """The last day on which it is accepted."""
    reason: str

    def matches(self, row: Mapping[str, Any]) -> bool:
        """Return True if all globs match ``row``, which has the columns :data:`GLOBS`."""
        return all(fnmatchcase(str(row[name]), glob) for name, glob in self.globs.items())

    def __str__(self) -> str:
        return ", ".join(f"{name} {glob}" for name, glob in self.globs.items())


def read_accepted(path: Path) -> tuple[Acceptance, ...]:
    """Read and check the file.

    Raises:
        UsageError: The file cannot be read or an entry is invalid; names the first error.
    """
    return parse_accepted(accepted_text(path), path)


def accepted_text(path: Path) -> str:
    """Read the text of the file, for :func:`parse_accepted`.

    Raises:
        UsageError: The file cannot be read or is not UTF-8 text.
    """
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not valid TOML: {error}", next_step=_FORM) from None


def parse_accepted(text: str, where: Path) -> tuple[Acceptance, ...]:
    """Parse the entries in ``text``, in order; errors name the file ``where``.

    Raises:
        UsageError: The text or an entry is invalid; names the first error.
    """
    try:
        document = parse_toml(text)
    except TomlSyntaxError as error:
        raise UsageError(f"{where} is {error}", next_step=_FORM) from None
    entries = document.get("accept", [])
    unknown = sorted(set(document) - {"accept"})
    if unknown or not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        what = f"unknown key {unknown[0]!r}" if unknown else "'accept' is not a list of tables"
        raise UsageError(f"{where}: {what}", next_step=_FORM)
    return tuple(_entry(f"{where}: entry {number}", entry) for number, entry in enumerate(entries, 1))


def _entry(where: str, entry: Mapping[str, Any]) -> Acceptance:
    unknown = sorted(set(entry) - {*GLOBS, "until", "reason"})
    if unknown:
        raise UsageError(f"{where}: unknown key {unknown[0]!r}", next_step=_FORM)
    globs = {name: entry[name] for name in GLOBS if name in entry}
    if not globs or not all(isinstance(glob, str) and glob for glob in globs.values()):
        raise UsageError(f"{where}: give a glob, as text, for one of {', '.join(GLOBS)}", next_step=_FORM)
    until, reason = entry.get("until"), entry.get("reason")
    if not isinstance(until, date) or isinstance(until, datetime):
        raise UsageError(f"{where}: 'until' must be a date without quotes", next_step=_FORM)
    if not isinstance(reason, str) or not reason.strip():
        raise UsageError(f"{where}: 'reason' must say why it is accepted", next_step=_FORM)
    return Acceptance(globs=globs, until=until, reason=reason.strip())
