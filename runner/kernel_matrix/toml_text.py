"""Parse TOML, and find line and column of its keys, which TOML parsers do not report."""

from __future__ import annotations

import re
import sys
from bisect import bisect_right
from collections.abc import Mapping
from typing import Any, cast

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

KeyPath = tuple[str | int, ...]
"""Path of a value, such as ``("gpus", 2, "name")``: keys of tables and indices of arrays."""

Position = tuple[int, int]
"""Line and column, both from 1; columns count characters."""

_BLANKS = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_STRING = re.compile(
    r'"""(?:\\.|[^\\])*?"""(?:"{0,2})'  # up to two more quotes belong to the text
    r"|'''.*?'''(?:'{0,2})"
    r'|"(?:\\.|[^"\\])*"'
    r"|'[^']*'",
    re.DOTALL,
)
_SCALAR = re.compile(r"[^,\]}#\n]*")
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]+\Z")
_LAST_PART = re.compile(r"(?:\[\d+\]|\.?[A-Za-z0-9_-]+|\.?\"(?:\\.|[^\"\\])*\")\Z")


_FAULT = re.compile(r"(?P<what>.*) \(at (?:line (?P<line>\d+), column (?P<column>\d+)|end of document)\)\Z", re.DOTALL)


class TomlSyntaxError(ValueError):
    """A text is not valid TOML.

    Args:
        reason: What is wrong, as in "not valid TOML: invalid value".
        position: Line and column; None if the parser does not say where.
    """

    def __init__(self, reason: str, position: Position | None = None) -> None:
        place = f" (line {position[0]}, column {position[1]})" if position else ""
        super().__init__(f"{reason}{place}".replace("\n", "\\n"))
        self.reason = reason.replace("\n", "\\n")
        self.position = position


def parse_toml(text: str) -> dict[str, Any]:
    """Parse a document.

    Raises:
        TomlSyntaxError: It is not valid, or is nested too deeply.
    """
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise TomlSyntaxError("not valid TOML: nested too deeply") from None
    except ValueError as error:  # a syntax error, or an integer with too many digits for Python
        found = _FAULT.match(str(error))
        what = found["what"] if found else str(error)
        position = None
        if found:
            position = (int(found["line"]), int(found["column"])) if found["line"] else _find_end(text)
        raise TomlSyntaxError(f"not valid TOML: {what[:1].lower()}{what[1:]}", position) from None


def _find_end(text: str) -> Position:
    last = text.rstrip().rpartition("\n")[2]
    return text.rstrip().count("\n") + 1, len(last) + 1


def scan(text: str) -> dict[KeyPath, Position]:
    """Return the position of every key, table and array element of ``text``, which must be valid TOML without a BOM.

    The position of a table is its header, that of an array element the start of its value. For a table that is only
    implied (``a`` of ``[a.b]``) it is the first place that implies it.
    """
    scanner = _Scanner(text)
    scanner.document()
    starts = [0, *(match.end() for match in re.finditer("\n", text))]
    return {path: _position(starts, offset) for path, offset in scanner.found.items()}


def nearest(positions: Mapping[KeyPath, Position], path: KeyPath) -> Position:
    """Return the position of ``path`` or of the innermost table or array around it; ``(1, 1)`` if there is none."""
    for length in range(len(path), 0, -1):
        if path[:length] in positions:
            return positions[path[:length]]
    return (1, 1)


def show(path: KeyPath) -> str:
    """Format ``path`` as ``problems[2].select``; keys that are not bare are quoted."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{_show_key(part)}" if text else _show_key(part)
    return text


def find(text: str, key_path: str) -> Position:
    """Return the position of ``key_path``, in the form of :func:`show`, or of the innermost value around it."""
    shown = {show(path): position for path, position in scan(text).items()}
    while key_path and key_path not in shown:
        shorter = _LAST_PART.sub("", key_path)
        key_path = shorter if shorter != key_path else ""
    return shown.get(key_path, (1, 1))


def _show_key(key: str) -> str:
    if _PLAIN_KEY.match(key):
        return key
    quoted = key.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in quoted) + '"'


def _position(starts: list[int], offset: int) -> Position:
    line = bisect_right(starts, offset)
    return line, offset - starts[line - 1] + 1


class _Scanner:
    """Scans a document once; ``found`` maps each path to its offset in the text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.found: dict[KeyPath, int] = {}
        self._tables: dict[KeyPath, int] = {}  # array of tables -> index of its latest element

    def document(self) -> None:
        table: KeyPath = ()
        self._skip(_BLANKS)
        while self.at < len(self.text):
            if self._sees("["):
                table = self._header()
            else:
                self._pair(table)
            self._skip(_BLANKS)

    def _header(self) -> KeyPath:
        start = self.at
        brackets = 2 if self._sees("[[") else 1
        self.at += brackets
        keys = self._keys()
        self.at += brackets
        return self._enter(keys, start, is_element=brackets == 2)

    def _enter(self, keys: list[str], start: int, *, is_element: bool) -> KeyPath:
        path: KeyPath = ()
        for key in keys[:-1]:
            path = self._current((*path, key))
            self.found.setdefault(path, start)
        path = (*path, keys[-1])
        if is_element:
            self.found.setdefault(path, start)
            self._tables[path] = self._tables.get(path, -1) + 1
            path = self._current(path)
        self.found[path] = start
        return path

    def _current(self, path: KeyPath) -> KeyPath:
        """Return ``path``, or the latest element if it is an array of tables."""
        return (*path, self._tables[path]) if path in self._tables else path

    def _pair(self, table: KeyPath) -> None:
        start = self.at
        keys = self._keys()
        self.at += len("=")
        self._skip(_SPACE)
        for length in range(1, len(keys)):
            self.found.setdefault((*table, *keys[:length]), start)
        path = (*table, *keys)
        self.found[path] = start
        self._value(path)

    def _keys(self) -> list[str]:
        """Read a dotted key and the blanks around it."""
        keys = [self._key()]
        while self._sees("."):
            self.at += len(".")
            keys.append(self._key())
        return keys

    def _key(self) -> str:
        self._skip(_SPACE)
        quoted = self.text[self.at] in "\"'"
        written = self._skip(_STRING if quoted else _BARE_KEY)
        self._skip(_SPACE)
        return cast("str", tomllib.loads(f"key = {written}")["key"]) if quoted else written

    def _value(self, path: KeyPath) -> None:
        first = self.text[self.at]
        if first == "[":
            self._array(path)
        elif first == "{":
            self._inline_table(path)
        else:
            self._skip(_STRING if first in "\"'" else _SCALAR)

    def _array(self, path: KeyPath) -> None:
        index = 0
        self.at += len("[")
        self._skip(_BLANKS)
        while not self._sees("]"):
            element = (*path, index)
            self.found[element] = self.at
            self._value(element)
            self._skip_comma()
            index += 1
        self.at += len("]")

    def _inline_table(self, path: KeyPath) -> None:
        self.at += len("{")
        self._skip(_BLANKS)
        while not self._sees("}"):
            self._pair(path)
            self._skip_comma()
        self.at += len("}")

    def _skip_comma(self) -> None:
        self._skip(_BLANKS)
        if self._sees(","):
            self.at += len(",")
            self._skip(_BLANKS)

    def _sees(self, text: str) -> bool:
        return self.text.startswith(text, self.at)

    def _skip(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self.text, self.at)
        if match is None:
            raise ValueError(f"not valid TOML at character {self.at}: parse before scanning")
        self.at = match.end()
        return match.group()
