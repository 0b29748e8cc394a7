"""Reader of others' JSON files, whole or by line; every fault names its line.

``NaN`` and ``Infinity`` are accepted, because Python writes them by default. They are refused only where a number
matters, and the rest of the file still counts.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final, TypeVar

from kernel_matrix.sources import UnreadableItem
from kernel_matrix.untrusted_json import (
    JsonFault,
    UntrustedJsonError,
    decode,
    escape_surrogates,
    parse_lenient,
    read_bytes,
    read_lines,
)

MAX_LINE_BYTES: Final = 16 << 20
_SHOWN_KEYS: Final = 6
_COUNT_LIMIT: Final = 2**31 - 1  # the largest number of a 32-bit column

Key = str | int
S = TypeVar("S")
T = TypeVar("T")

_SPACE = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder()


class BadValueError(ValueError):
    """A value that cannot be used.

    Args:
        reason: The fault.
        keys: Position in its document.
        line: Line of its file, if it is known without a search.
    """

    def __init__(self, reason: str, keys: Sequence[Key] = (), line: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.keys = tuple(keys)
        self.line = line

    def __str__(self) -> str:
        place = ".".join(map(str, self.keys))
        return f"{place}: {self.reason}" if place else self.reason


@dataclass(frozen=True, slots=True)
class JsonNode:
    """A value within a document, with its position."""

    value: Any
    keys: tuple[Key, ...] = ()
    line: int | None = None
    """Line of the file, if a document is one line; ``None`` if it must be searched for."""

    def fault(self, reason: str) -> BadValueError:
        """Return the error for a value that turns out to be unusable."""
        return BadValueError(reason, self.keys, self.line)

    def __getitem__(self, key: str) -> JsonNode:
        found = self.get(key)
        if found is None:
            raise self.fault(f"lacks {key!r}")
        return found

    def get(self, key: str) -> JsonNode | None:
        """Return the member ``key``; ``None`` if it is absent or null."""
        value = self._a(dict, "an object").get(key)
        return None if value is None else JsonNode(value, (*self.keys, key), self.line)

    def members(self) -> Iterator[tuple[str, JsonNode]]:
        """Yield (key, value) of an object's members."""
        for key, value in self._a(dict, "an object").items():
            yield key, JsonNode(value, (*self.keys, key), self.line)

    def elements(self) -> Iterator[JsonNode]:
        """Yield the values of a list."""
        for index, value in enumerate(self._a(list, "a list")):
            yield JsonNode(value, (*self.keys, index), self.line)

    def text(self) -> str:
        """Return the value, which must be a string."""
        found: str = self._a(str, "a string")
        return found

    def truth(self) -> bool:
        """Return the value, which must be ``true`` or ``false``."""
        found: bool = self._a(bool, "true or false")
        return found

    def number(self) -> float:
        """Return the value, which must be a finite number."""
        value = self.value
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self.fault(f"must be a number; got {_kind(value)}")
        try:
            number = float(value)
        except OverflowError:
            raise self.fault("is too large a number") from None
        if not math.isfinite(number):
            raise self.fault(f"must be a finite number; got {number}")
        return number

    def amount(self, scale: float = 1.0) -> float:
        """Return ``scale`` times the value, which must be a finite number that is not negative."""
        number = self.number()
        if number < 0:
            raise self.fault(f"must not be negative; got {number:g}")
        if not math.isfinite(number * scale):
            raise self.fault(f"is too large a number: {number:g}")
        return number * scale

    def count(self) -> int:
        """Return the value, which must be a whole number from 0 that fits into 32 bits."""
        number = self.amount()
        if number != int(number) or number > _COUNT_LIMIT:
            raise self.fault(f"must be a whole number of at most {_COUNT_LIMIT}; got {number:g}")
        return int(number)

    def _a(self, kind: type, called: str) -> Any:
        if not isinstance(self.value, kind):
            raise self.fault(f"must be {called}; got {_kind(self.value)}")
        return self.value


def _kind(value: object) -> str:
    kinds = {dict: "an object", list: "a list", str: "a string", bool: "true or false", type(None): "null"}
    return kinds.get(type(value), "a number")


class JsonFile:
    """One file: its documents, its refused parts, and the digest of its content.

    Args:
        path: Path of a regular file.

    Raises:
        BadValueError: Nothing of it can be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.notes: list[str] = []
        self._faults: list[BadValueError] = []
        self._text: str | None = None
        self._document: Any = None
        self._sha256 = hashlib.sha256()
        self.place = path.resolve().parent
        """Its folder, with links resolved."""
        self.folder = escape_surrogates(self.place.name)
        """Name of that folder."""
        if not path.is_file():
            raise BadValueError("there is no such file" if not path.exists() else "is not a regular file")
        try:
            self.by_line = path.suffix == ".jsonl" or not self._read_document()
        except UntrustedJsonError as error:
            raise BadValueError(error.reason, (), error.line) from None

    @property
    def sha256(self) -> str:
        """Digest of the content; known once everything was read."""
        return self._sha256.hexdigest()

    def documents(self) -> Iterator[JsonNode]:
        """Yield the one document of the file, or that of each line; lines without one are refused."""
        for line, value in self._parsed():
            if isinstance(value, BadValueError):
                self._faults.append(value)
            else:
                yield JsonNode(value, (), line)

    def document(self) -> JsonNode:
        """Return the one document of a file that must not hold several.

        Raises:
            BadValueError: There is none, or more than one.
        """
        found = list(islice(self.documents(), 2))
        if len(found) == 1:
            return found[0]
        if found:
            raise BadValueError("holds more than one document, and its format has one per file")
        raise self._faults[0] if self._faults else BadValueError("holds no document")

    def first(self) -> Any:
        """Return the first document that can be parsed; ``None`` if there is none."""
        return next((value for _line, value in self._parsed() if not isinstance(value, BadValueError)), None)

    def each(self, parts: Iterable[S], make: Callable[[S], T | None]) -> Iterator[T]:
        """Yield the results of ``make`` for each part except ``None``; refused parts are kept for :meth:`refused`."""
        try:
            for part in parts:
                try:
                    made = make(part)
                except BadValueError as error:
                    self._faults.append(error)
                    continue
                if made is not None:
                    yield made
        except BadValueError as error:  # the list itself is none
            self._faults.append(error)

    def broken(self) -> BadValueError | None:
        """Return the error of the first line, if no line can be parsed; ``None`` if there is no line."""
        return next((value for _line, value in self._parsed() if isinstance(value, BadValueError)), None)

    def refused(self) -> list[UnreadableItem]:
        """Return everything refused so far, by line."""
        lines = _lines_of(self._text, {e.keys for e in self._faults if e.line is None}) if self._text else {}
        found = [
            UnreadableItem(path=self.path, reason=str(e), line=lines.get(e.keys) if e.line is None else e.line)
            for e in self._faults
        ]
        return sorted(found, key=lambda one: (one.line or 0, one.reason))

    def _parsed(self) -> Iterator[tuple[int | None, Any]]:
        """Yield (line, value) of each document; the value of an unreadable one is the :class:`BadValueError`.

        Once all lines are read, the digest is known.
        """
        if not self.by_line:
            yield None, self._document
            return
        digest = hashlib.sha256()
        try:
            with self.path.open("rb") as file:
                for number, line in read_lines(file, MAX_LINE_BYTES, digest.update):
                    yield number, _value(line, number)
        except OSError as error:
            yield None, BadValueError(f"cannot be read: {error.strerror}")
        self._sha256 = digest

    def _read_document(self) -> bool:
        """Return whether the file is one document; ``False`` if each line is one."""
        try:
            content = read_bytes(self.path, follow_links=True)
            text = decode(content)
            self._document = parse_lenient(text)
        except UntrustedJsonError as error:
            if error.fault in (JsonFault.NOT_JSON, JsonFault.TOO_LARGE) and self._begins_with_a_line():
                return False
            raise
        self._text = text
        self._sha256.update(content)
        return True

    def _begins_with_a_line(self) -> bool:
        """Return True if the first of several lines is an object by itself."""
        with self.path.open("rb") as file:
            first = file.readline(MAX_LINE_BYTES + 1)
            return first.endswith(b"\n") and bool(file.read(1 << 20).strip()) and isinstance(_value(first, 1), dict)


def shown_keys(value: Any) -> str:
    """Return a description of a document's start."""
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return f"it is a list of {len(value)}; in the first element, {shown_keys(value[0])}"
    if not isinstance(value, dict):
        return f"it is {_kind(value)}" + (f" of {len(value)}" if isinstance(value, list) else "")
    keys = list(value)[:_SHOWN_KEYS]
    return f"its keys are {', '.join(keys)}{', …' if len(value) > _SHOWN_KEYS else ''}" if keys else "it is empty"


def _value(line: bytes | None, number: int) -> Any:
    """Return the value of a line, or the :class:`BadValueError` that says why it is unknown."""
    if line is None:
        return BadValueError(f"is longer than {MAX_LINE_BYTES >> 20} MiB", (), number)
    try:
        return parse_lenient(decode(line, number), number)
    except UntrustedJsonError as error:
        return BadValueError(error.reason, (), error.line)


def _lines_of(text: str, wanted: AbstractSet[tuple[Key, ...]]) -> dict[tuple[Key, ...], int]:
    """Return the line of each of ``wanted``, or of the nearest value around it, in one pass over ``text``."""
    around = {keys[:depth] for keys in wanted for depth in range(len(keys))}
    places = dict(_places(text, _skip(text, 0), (), wanted | around, around))
    found, last, line = {}, 0, 1
    for keys in sorted(wanted, key=lambda keys: places[_known(keys, places)]):
        place = places[_known(keys, places)]
        line += text.count("\n", last, place)
        found[keys], last = line, place
    return found


def _known(keys: tuple[Key, ...], places: Mapping[tuple[Key, ...], int]) -> tuple[Key, ...]:
    """Return the longest prefix of ``keys`` that has a place."""
    return next(keys[:depth] for depth in range(len(keys), -1, -1) if keys[:depth] in places)


def _places(
    text: str,
    start: int,
    keys: tuple[Key, ...],
    wanted: AbstractSet[tuple[Key, ...]],
    around: AbstractSet[tuple[Key, ...]],
) -> Iterator[tuple[tuple[Key, ...], int]]:
    """Yield (keys, offset) of each value in ``wanted`` within the value at ``start``; for members, of the key.

    Args:
        text: The document.
        start: Offset of the value to search.
        keys: Keys of that value.
        wanted: Keys of the values to find.
        around: Keys of all values that contain one of ``wanted``.
    """
    if not keys:
        yield keys, start
    if text[start] not in "{[" or keys not in around:
        return
    is_object, position, index = text[start] == "{", _skip(text, start + 1), 0
    while text[position] not in "}]":
        place = position
        inner: tuple[Key, ...] = (*keys, index)
        if is_object:
            name, position = _DECODER.raw_decode(text, position)
            position = _skip(text, _skip(text, position) + 1)
            inner = (*keys, escape_surrogates(name))
        if inner in wanted:
            yield inner, place
            yield from _places(text, position, inner, wanted, around)
        position, index = _skip(text, _DECODER.raw_decode(text, position)[1]), index + 1
        if text[position] == ",":
            position = _skip(text, position + 1)


def _skip(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    return match.end() if match else position
