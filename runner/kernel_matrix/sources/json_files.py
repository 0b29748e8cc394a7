"""Other people's JSON files: read whole or line by line, every fault with the line it is on.

More is taken than JSON allows, since Python writes ``NaN`` and ``Infinity`` unasked: where a number matters, they are
refused there, and the rest of the file still counts.
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
_COUNT_LIMIT: Final = 2**31 - 1

Key = str | int
S = TypeVar("S")
T = TypeVar("T")

_SPACE = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder()


class BadValueError(ValueError):
    """A value that cannot be used.

    :param keys: where it is in its document.
    :param line: where it is in its file, if that is known without looking.
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
    """A value within a document, and where it is."""

    value: Any
    keys: tuple[Key, ...] = ()
    line: int | None = None
    """Of the file, where a document is one line; null where it has to be looked up."""

    def fault(self, reason: str) -> BadValueError:
        """What to raise when the value makes no sense after all."""
        return BadValueError(reason, self.keys, self.line)

    def __getitem__(self, key: str) -> JsonNode:
        found = self.get(key)
        if found is None:
            raise self.fault(f"lacks {key!r}")
        return found

    def get(self, key: str) -> JsonNode | None:
        """The member ``key``; null where there is none, or it is null."""
        value = self._a(dict, "an object").get(key)
        return None if value is None else JsonNode(value, (*self.keys, key), self.line)

    def members(self) -> Iterator[tuple[str, JsonNode]]:
        """(key, value) of an object."""
        for key, value in self._a(dict, "an object").items():
            yield key, JsonNode(value, (*self.keys, key), self.line)

    def elements(self) -> Iterator[JsonNode]:
        """Values of a list."""
        for index, value in enumerate(self._a(list, "a list")):
            yield JsonNode(value, (*self.keys, index), self.line)

    def text(self) -> str:
        """A string."""
        found: str = self._a(str, "a string")
        return found

    def truth(self) -> bool:
        """``true`` or ``false``."""
        found: bool = self._a(bool, "true or false")
        return found

    def number(self) -> float:
        """A finite number."""
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
        """A finite number that is not negative, times ``scale``."""
        number = self.number()
        if number < 0:
            raise self.fault(f"must not be negative; got {number:g}")
        if not math.isfinite(number * scale):
            raise self.fault(f"is too large a number: {number:g}")
        return number * scale

    def count(self) -> int:
        """A whole number from 0 that fits into 32 bits."""
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
    """One file: its documents, what of it was refused, and the digest of its content.

    :param path: of a regular file.
    :raises BadValueError: when nothing of it can be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.notes: list[str] = []
        self._faults: list[BadValueError] = []
        self._text: str | None = None
        self._document: Any = None
        self._sha256 = hashlib.sha256()
        self.place = path.resolve().parent
        """The folder it lies in, whatever links led there."""
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
        """Of the content; known once everything was read."""
        return self._sha256.hexdigest()

    def documents(self) -> Iterator[JsonNode]:
        """The one document of the file, or that of each line; lines that hold none are refused."""
        for line, value in self._parsed():
            if isinstance(value, BadValueError):
                self._faults.append(value)
            else:
                yield JsonNode(value, (), line)

    def document(self) -> JsonNode:
        """The one document of a file that must not hold several.

        :raises BadValueError: when there is none, or more than one.
        """
        found = list(islice(self.documents(), 2))
        if len(found) == 1:
            return found[0]
        if found:
            raise BadValueError("holds more than one document, and its format has one per file")
        raise self._faults[0] if self._faults else BadValueError("holds no document")

    def first(self) -> Any:
        """The first document that can be parsed; null where there is none."""
        return next((value for _line, value in self._parsed() if not isinstance(value, BadValueError)), None)

    def each(self, parts: Iterable[S], make: Callable[[S], T | None]) -> Iterator[T]:
        """What ``make`` makes of each part, but for null; what it refuses is kept for :meth:`refused`."""
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
        """What is wrong with the first line, in a file of which no line can be parsed; null where there is no line."""
        return next((value for _line, value in self._parsed() if isinstance(value, BadValueError)), None)

    def refused(self) -> list[UnreadableItem]:
        """All that was refused so far, by line."""
        lines = _lines_of(self._text, {e.keys for e in self._faults if e.line is None}) if self._text else {}
        found = [
            UnreadableItem(path=self.path, reason=str(e), line=lines.get(e.keys) if e.line is None else e.line)
            for e in self._faults
        ]
        return sorted(found, key=lambda one: (one.line or 0, one.reason))

    def _parsed(self) -> Iterator[tuple[int | None, Any]]:
        """(line, value, or the :class:`BadValueError` that says why there is none) of each document.

        A look at lines that comes to the end takes the digest of them all.
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
        """Whether the file is one document; false where it holds one on each line."""
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
    """What a document starts with, in words."""
    if not isinstance(value, dict):
        return f"it is {_kind(value)}" + (f" of {len(value)}" if isinstance(value, list) else "")
    keys = list(value)[:_SHOWN_KEYS]
    return f"its keys are {', '.join(keys)}{', …' if len(value) > _SHOWN_KEYS else ''}" if keys else "it is empty"


def _value(line: bytes | None, number: int) -> Any:
    """What a line holds, or the :class:`BadValueError` that says why that cannot be known."""
    if line is None:
        return BadValueError(f"is longer than {MAX_LINE_BYTES >> 20} MiB", (), number)
    try:
        return parse_lenient(decode(line, number), number)
    except UntrustedJsonError as error:
        return BadValueError(error.reason, (), error.line)


def _lines_of(text: str, wanted: AbstractSet[tuple[Key, ...]]) -> dict[tuple[Key, ...], int]:
    """The line of each of ``wanted``, or of the nearest thing around it, in one walk over ``text``."""
    around = {keys[:depth] for keys in wanted for depth in range(len(keys))}
    places = dict(_places(text, _skip(text, 0), (), wanted | around, around))
    found, last, line = {}, 0, 1
    for keys in sorted(wanted, key=lambda keys: places[_known(keys, places)]):
        place = places[_known(keys, places)]
        line += text.count("\n", last, place)
        found[keys], last = line, place
    return found


def _known(keys: tuple[Key, ...], places: Mapping[tuple[Key, ...], int]) -> tuple[Key, ...]:
    """``keys``, or as many of the first of them as have a place."""
    return next(keys[:depth] for depth in range(len(keys), -1, -1) if keys[:depth] in places)


def _places(
    text: str,
    start: int,
    keys: tuple[Key, ...],
    wanted: AbstractSet[tuple[Key, ...]],
    around: AbstractSet[tuple[Key, ...]],
) -> Iterator[tuple[tuple[Key, ...], int]]:
    """(keys, offset) of each value in ``wanted`` within the value at ``start``; of members, that of the key.

    :param around: keys of all values that hold one of those.
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
