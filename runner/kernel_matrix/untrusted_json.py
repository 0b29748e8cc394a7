"""Read JSON that another program, an earlier version or a candidate wrote: cut short, enormous, a link, or hostile.

Every fault is an :class:`UntrustedJsonError`. There are two parsers. :func:`parse_object` reads documents of this
program, of which there may be millions: it is fast and strict. :func:`parse` reads files of other people, and says on
which line a fault is.
"""

from __future__ import annotations

import errno
import json
import math
import os
import re
import stat
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path
from typing import Any, BinaryIO, Final, NoReturn

import orjson

MAX_BYTES: Final = 64 << 20
"""Larger files are not read at all, unless a caller says otherwise."""

# Half of a character outside the basic plane; only an escape can bring in one by itself.
_HALF_CHARACTER = re.compile(r"\\u[dD][89a-fA-F]")


class JsonFault(str, Enum):
    """Why a file or text is refused."""

    UNREADABLE = "unreadable"
    """The system refuses to read it, or it changed while it was read."""
    NOT_A_FILE = "not_a_file"
    """A symbolic link, folder, pipe or device."""
    TOO_LARGE = "too_large"
    NOT_JSON = "not_json"
    """Not UTF-8, not JSON, nested too deeply, or not the kind of value that was asked for."""


class UntrustedJsonError(ValueError):
    """A file or text that is refused.

    Args:
        reason: To follow the file's name, as in "is not UTF-8 text".
        fault: Its kind.
        line: The line of the file, from 1; None if there is none.
    """

    def __init__(self, reason: str, fault: JsonFault = JsonFault.NOT_JSON, line: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.fault = fault
        self.line = line


class NoSuchFileError(UntrustedJsonError):
    """There is no such file."""


def read_bytes(path: str | Path, *, max_bytes: int = MAX_BYTES, follow_links: bool = False, own: bool = False) -> bytes:
    """Read a regular file without waiting for a pipe.

    Args:
        path: The file.
        max_bytes: Size of the largest file that is read.
        follow_links: Accept a symbolic link to a regular file, as for a path that the user named.
        own: Accept only a file of this user or root, and with one name: in a folder of all users, another user can make
            a hard link to a file of this user.

    Raises:
        NoSuchFileError: There is no such file.
        UntrustedJsonError: It is anything else, is larger, cannot be read, or changes meanwhile.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow_links else os.O_NOFOLLOW)
    try:
        descriptor = os.open(path, flags)
        try:
            return _read_regular(descriptor, max_bytes, own=own)
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        raise NoSuchFileError("there is no such file", JsonFault.UNREADABLE) from None
    except OSError as error:
        if error.errno == errno.ELOOP and not follow_links:
            raise UntrustedJsonError("is a symbolic link", JsonFault.NOT_A_FILE) from None
        raise UntrustedJsonError(f"cannot be read: {error.strerror}", JsonFault.UNREADABLE) from None


def read_object(path: str | Path, *, max_bytes: int = MAX_BYTES, follow_links: bool = False) -> dict[str, Any]:
    """Read the JSON object in a file; see :func:`read_bytes` and :func:`parse_object`."""
    return parse_object(read_bytes(path, max_bytes=max_bytes, follow_links=follow_links))


def read_lines(
    file: BinaryIO, max_bytes: int, seen: Callable[[bytes], object] = lambda _piece: None
) -> Iterator[tuple[int, bytes | None]]:
    """Yield (number from 1, stripped line) for each line that is not blank, with None for one of over ``max_bytes``.

    Args:
        file: The open file.
        max_bytes: Size of the longest line that is kept in memory.
        seen: Gets all that is read, also of lines that are too long.
    """
    number = 0
    while line := file.readline(max_bytes + 1):
        number += 1
        seen(line)
        rest = line
        while not rest.endswith(b"\n") and (rest := file.readline(max_bytes)):
            seen(rest)
        if len(line) > max_bytes:
            yield number, None
        elif stripped := line.strip():
            yield number, stripped


def decode(content: bytes, line: int = 1) -> str:
    """Decode UTF-8 with or without a byte order mark.

    Args:
        content: What to decode.
        line: The line of its file at which it begins.

    Raises:
        UntrustedJsonError: It is not UTF-8.
    """
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        bad_line = line + content.count(b"\n", 0, error.start)
        raise UntrustedJsonError("is not UTF-8 text", line=bad_line) from None


def parse_object(data: bytes) -> dict[str, Any]:
    """Parse a JSON object strictly: UTF-8, no NaN, no infinity, no unpaired surrogate, bounded depth.

    Raises:
        UntrustedJsonError: It is anything else.
    """
    try:
        document = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise UntrustedJsonError(str(error), line=error.lineno) from None
    if not isinstance(document, dict):
        raise UntrustedJsonError(f"holds a {type(document).__name__}, not an object")
    return document


def parse(text: str, line: int = 1) -> Any:
    """Parse JSON without NaN and infinities.

    Args:
        text: What to parse.
        line: The line of its file at which it begins.

    Raises:
        UntrustedJsonError: It is not JSON, or is nested too deeply.
    """
    return _load(text, line, parse_constant=_refuse_constant, parse_float=_finite)


def parse_lenient(text: str, line: int = 1) -> Any:
    """Parse JSON in which NaN and infinities are allowed, since Python writes them, and repeated keys are not.

    Which of two values of a key is meant cannot be known, and a parser drops one of them silently. Halves of
    characters are replaced as in :func:`escape_surrogates`.

    Args:
        text: What to parse.
        line: The line of its file at which it begins.

    Raises:
        UntrustedJsonError: It is not JSON, is nested too deeply, or repeats a key.
    """
    repeated: list[str] = []

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        members = dict(pairs)
        if len(members) < len(pairs):
            keys = [key for key, _ in pairs]
            repeated.append(next(key for key in keys if keys.count(key) > 1))
        return members

    value = _load(text, line, object_pairs_hook=unique)
    if repeated:
        key = json.dumps(repeated[0])
        place = text.find(key, text.find(key) + 1)
        reason = f"one object has the key {repeated[0]!r} twice"
        raise UntrustedJsonError(reason, line=line + text.count("\n", 0, max(place, 0)))
    return _escape_all(value) if _HALF_CHARACTER.search(text) else value


def escape_surrogates(text: str) -> str:
    """Replace halves of characters, which no table can hold, by their escapes."""
    return text.encode("utf-8", "backslashreplace").decode()


def _read_regular(descriptor: int, max_bytes: int, *, own: bool) -> bytes:
    info = os.fstat(descriptor)
    if not stat.S_ISREG(info.st_mode):
        raise UntrustedJsonError("is not a regular file", JsonFault.NOT_A_FILE)
    if own and info.st_uid not in (0, os.geteuid()):
        raise UntrustedJsonError(f"belongs to user {info.st_uid}, who is not trusted", JsonFault.UNREADABLE)
    if own and info.st_nlink != 1:
        raise UntrustedJsonError("has another name, as a hard link", JsonFault.UNREADABLE)
    if info.st_size > max_bytes:
        limit = f"{max_bytes >> 20} MiB" if max_bytes >= 1 << 20 else f"{max_bytes >> 10} KiB"
        raise UntrustedJsonError(
            f"is larger than {limit}: {info.st_size} of at most {max_bytes} bytes", JsonFault.TOO_LARGE
        )
    data = b""
    while len(data) <= info.st_size and (piece := os.read(descriptor, info.st_size + 1 - len(data))):
        data += piece
    if len(data) != info.st_size:
        raise UntrustedJsonError("changed while it was read", JsonFault.UNREADABLE)
    return data


def _load(text: str, line: int, **hooks: Any) -> Any:
    try:
        return json.loads(text, **hooks)
    except json.JSONDecodeError as error:
        raise UntrustedJsonError(f"not valid JSON: {error.msg}", line=line + error.lineno - 1) from None
    except RecursionError:
        raise UntrustedJsonError("is nested too deeply", line=line) from None
    except ValueError as error:  # a refused number, or one of thousands of digits
        raise UntrustedJsonError(f"not valid JSON: {error}", line=line) from None


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number of JSON")


def _finite(number: str) -> float:
    value = float(number)
    if not math.isfinite(value):
        raise ValueError(f"{number} is too large")
    return value


def _escape_all(value: Any) -> Any:
    if isinstance(value, str):
        return escape_surrogates(value)
    if isinstance(value, list):
        return [_escape_all(inner) for inner in value]
    if isinstance(value, dict):
        return {escape_surrogates(key): _escape_all(inner) for key, inner in value.items()}
    return value
