"""Strict reader of JSON objects in others' files: no NaN, no infinity; every fault names its line."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

from kernel_matrix.sources.document import UnreadableFileError, read_bytes

Object = Mapping[str, Any]


def read_object(path: Path) -> tuple[Object, str]:
    """Return the object in a JSON file, and the file's text.

    Raises:
        UnreadableError: It cannot be read, or is anything else.
    """
    text = read_text(path)
    return parse_object(path, text), text


def read_text(path: Path) -> str:
    """Return a file's text.

    Raises:
        UnreadableError: It cannot be read, is too large, or is not UTF-8.
    """
    content = read_bytes(path)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UnreadableFileError(path, "is not UTF-8 text", content.count(b"\n", 0, error.start) + 1) from None


def lines_of(text: str) -> Iterator[tuple[int, str]]:
    """Yield (number from 1, line) of each line that is not blank; only a newline ends a line."""
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield number, line


def parse_object(path: Path, text: str, line: int = 1) -> Object:
    """Return the object in ``text``.

    Args:
        path: Path of the file, for messages.
        text: The JSON text.
        line: Line of the file at which ``text`` begins.

    Raises:
        UnreadableError: It is no object, or not strict JSON.
    """
    try:
        value = json.loads(text, parse_constant=_refuse, parse_float=_finite)
    except json.JSONDecodeError as error:
        raise UnreadableFileError(path, f"not valid JSON: {error.msg}", line + error.lineno - 1) from None
    except RecursionError:
        raise UnreadableFileError(path, "is nested too deeply", line) from None
    except ValueError as error:  # NaN, an infinity, or a number with thousands of digits
        raise UnreadableFileError(path, f"not valid JSON: {error}", line) from None
    if not isinstance(value, dict):
        raise UnreadableFileError(path, f"must be a JSON object; got {type(value).__name__}", line)
    return value


def line_of_key(text: str, key: str) -> int:
    """Return the line, from 1, of the first occurrence of ``key``; 1 if there is none."""
    place = text.find(json.dumps(key))
    return text.count("\n", 0, place) + 1 if place >= 0 else 1


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number of JSON")


def _finite(number: str) -> float:
    value = float(number)
    if not math.isfinite(value):
        raise ValueError(f"{number} is too large")
    return value
