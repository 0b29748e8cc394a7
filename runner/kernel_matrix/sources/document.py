"""Read the TOML and JSON files of a source, with the line of each fault."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from jsonschema import Draft202012Validator, ValidationError

from kernel_matrix.errors import UsageError, suggestion
from kernel_matrix.json_schemas import is_valid, load_schema
from kernel_matrix.sources import UnreadableItem
from kernel_matrix.toml_text import TomlSyntaxError, nearest, parse_toml, scan
from kernel_matrix.untrusted_json import UntrustedJsonError, decode, parse
from kernel_matrix.untrusted_json import read_bytes as read_regular_file

ID_FORM = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\Z")
"""Form of an id, or of one part of it."""
NOT_IN_IDS = re.compile(r"[^A-Za-z0-9._-]+")

MAX_BYTES = 4 << 20
"""Largest file that is read, in bytes; sources of kernels are far smaller."""

Item = TypeVar("Item")
T = TypeVar("T")

JsonObject = Mapping[str, Any]


class UnreadableFileError(UsageError):
    """A file of a source cannot be used; the source lists it as an :class:`.UnreadableItem` and continues."""

    def __init__(self, path: Path, reason: str, line: int | None = None) -> None:
        self.unreadable = UnreadableItem(path=path, reason=reason, line=line)
        super().__init__(str(self.unreadable))


@dataclass(frozen=True, slots=True)
class TomlDocument:
    """A TOML file that conforms to its schema."""

    path: Path
    values: Mapping[str, Any]
    text: str

    def error(self, reason: str, *keys: str) -> UnreadableFileError:
        """Make the exception for a value at ``keys`` that is invalid although it conforms to the schema."""
        return UnreadableFileError(self.path, f"{'.'.join(keys)}: {reason}", line_of(self.text, keys))


def read_bytes(path: Path) -> bytes:
    """Read a regular file of at most :data:`MAX_BYTES`.

    Raises:
        UnreadableFileError: it is not a regular file, is larger, or cannot be read.
    """
    with refusals_of(path):
        return read_regular_file(path, max_bytes=MAX_BYTES, follow_links=True)


def read_text(path: Path) -> str:
    """Read a file as UTF-8; see :func:`read_bytes`.

    Raises:
        UnreadableFileError: with the line of the first byte that is not UTF-8.
    """
    with refusals_of(path):
        return decode(read_bytes(path))


def parse_json_object(path: Path, content: str | bytes, line: int = 1) -> JsonObject:
    """Parse a JSON object of a file.

    Args:
        path: the file.
        content: what to parse.
        line: the line of the file at which it begins.

    Raises:
        UnreadableFileError: it is anything else.
    """
    with refusals_of(path):
        value = parse(content if isinstance(content, str) else decode(content, line), line)
    if not isinstance(value, dict):
        raise UnreadableFileError(path, f"must be a JSON object; got {type(value).__name__}", line)
    return value


def line_of_json_key(text: str, key: str) -> int:
    """Return the line, from 1, on which ``key`` is first written, or 1 if it is not there."""
    place = text.find(json.dumps(key))
    return text.count("\n", 0, place) + 1 if place >= 0 else 1


@contextmanager
def refusals_of(path: Path) -> Iterator[None]:
    """Turn an ``UntrustedJsonError`` about ``path`` into an ``UnreadableFileError``."""
    try:
        yield
    except UntrustedJsonError as error:
        raise UnreadableFileError(path, error.reason, error.line) from None


def read_document(path: Path, schema: str) -> TomlDocument:
    """Read a TOML file and check it against ``schemas/<schema>.schema.json``.

    Raises:
        UnreadableFileError: with the line of the first fault.
    """
    text = read_text(path)
    try:
        values = parse_toml(text)
    except TomlSyntaxError as fault:
        raise UnreadableFileError(path, fault.reason, fault.position[0] if fault.position else None) from None
    error = _first_error(schema, values)
    if error is not None:
        keys, reason = _explain(error)
        raise UnreadableFileError(path, f"{'.'.join(keys)}: {reason}" if keys else reason, line_of(text, keys))
    return TomlDocument(path, values, text)


def read_each(items: Iterable[Item], read: Callable[[Item], T]) -> tuple[tuple[T, ...], tuple[UnreadableItem, ...]]:
    """Apply ``read`` to each item; return the results, and the items for which it raised ``UnreadableFileError``."""
    found: list[T] = []
    refused: list[UnreadableItem] = []
    for item in items:
        try:
            found.append(read(item))
        except UnreadableFileError as error:  # noqa: PERF203  # one bad file must not end the others
            refused.append(error.unreadable)
    return tuple(found), tuple(refused)


def line_of(text: str, keys: Sequence[str | int]) -> int:
    """Return the line, from 1, of a key of a TOML document or of the innermost table around it."""
    try:
        return nearest(scan(text), tuple(keys))[0]
    except RecursionError:  # nested deeper than the scanner can follow
        return 1


def _first_error(schema: str, values: JsonObject) -> ValidationError | None:
    with suppress(ValueError):  # a date, which is in TOML only
        if is_valid(schema, values):  # many times as fast as the validator that explains
            return None
    errors = Draft202012Validator(load_schema(schema)).iter_errors(values)
    return min(errors, key=lambda error: list(map(str, error.path)), default=None)


def _explain(error: ValidationError) -> tuple[tuple[str, ...], str]:
    """Return the faulty key and the reason."""
    keys = tuple(str(part) for part in error.absolute_path)
    if "propertyNames" in error.absolute_schema_path:  # the fault is the key itself
        keys = (*keys, str(error.instance))
    wanted: Any = error.validator_value
    if error.validator == "additionalProperties" and isinstance(error.instance, dict):
        allowed = list(error.schema.get("properties", ())) if isinstance(error.schema, Mapping) else []
        unknown = next(key for key in error.instance if key not in allowed)
        return (*keys, unknown), f"unknown key; allowed: {', '.join(allowed)}{suggestion(unknown, allowed)}"
    if error.validator == "enum":
        allowed = [str(value) for value in wanted]
        hint = suggestion(str(error.instance), allowed)
        return keys, f"{error.instance!r} is not allowed; allowed: {', '.join(allowed)}{hint}"
    return keys, error.message
