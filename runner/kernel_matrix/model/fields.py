"""Descriptions of record fields: their allowed values, and the table columns they become.

The description is part of the field's annotation, and the docstring below the field documents it::

    unexplained_ns: Annotated[Difference, Column()]

JSON Schemas, table schemas, rows of tables and the tables in ``docs/reference/records.md`` are generated from these
descriptions. :func:`typing.get_type_hints` omits them by default, so code that runs inside never sees them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Dict, Mapping, Tuple


@dataclass(frozen=True)
class Range:
    """Least and greatest value of a number."""

    low: float
    high: float


@dataclass(frozen=True)
class Length:
    """Least and greatest number of characters of a text."""

    most: int
    least: int = 0


@dataclass(frozen=True)
class Pattern:
    """Regular expression that a text matches."""

    text: str


@dataclass(frozen=True)
class Words:
    """The texts that are allowed."""

    allowed: Tuple[str, ...]


@dataclass(frozen=True)
class Items:
    """Greatest number of items of a tuple."""

    most: int


@dataclass(frozen=True)
class JsonOf:
    """Mark of a mapping that has the JSON form of a dataclass."""

    kind: type
    partial: bool = False
    """``True``: any of its fields may be absent."""
    open: bool = False
    """``True``: there may be further keys, with single values."""


class Fragment:
    """JSON Schema for a value that no other description fits."""

    def __init__(self, **schema: Any) -> None:
        self.schema: Dict[str, Any] = schema


class AddedLater:
    """Mark of a field that records of earlier versions lack; it has a default."""


@dataclass(frozen=True)
class Column:
    """Mark of a field that becomes a column."""

    name: str = ""
    """Name of the column; empty: the name of the field."""
    tables: Tuple[str, ...] = ("cells",)
    form: str = ""
    """``count``: number of items; ``item``: a row per item; ``json``: JSON text; ``instant``: a time stamp."""
    words: Tuple[str, ...] = ()
    """Values of the column, if it can have more than the field."""


@dataclass(frozen=True)
class Columns:
    """Mark of an object whose fields become columns, as their own descriptions say."""

    prefix: str = ""
    key: str = ""
    """Key of the object within a mapping; empty: the object itself."""
    every: bool = False
    """``True``: fields without a :class:`Column` also become one, under their own name."""


@dataclass(frozen=True)
class KeyColumns:
    """Mark of a mapping whose keys become columns."""

    columns: Mapping[str, str]
    """Key → name of its column."""
    tables: Tuple[str, ...] = ("cells",)

    @classmethod
    def named(cls, name: str, keys: Tuple[str, ...], tables: Tuple[str, ...] = ("cells",)) -> KeyColumns:
        """Return a mark with columns for ``keys``, named by the format ``name``."""
        return cls({key: name.format(key) for key in keys}, tables)


INT32, INT64 = 2**31 - 1, 2**63 - 1

LATER = AddedLater()

Count = Annotated[int, Range(0, INT64)]
Positive = Annotated[int, Range(1, INT64)]
Small = Annotated[int, Range(0, INT32)]
Ordinal = Annotated[int, Range(1, INT32)]
Difference = Annotated[int, Range(-INT64, INT64)]
Measured = Annotated[float, Range(0, 1e30)]
Signed = Annotated[float, Range(-1e300, 1e300)]
Celsius = Annotated[float, Range(-300, 1e6)]
Share = Annotated[float, Range(0, 1)]
Rate = Annotated[float, Range(1, 1e30)]

Name = Annotated[str, Length(1024, least=1)]
Text = Annotated[str, Length(1 << 20)]
"""Text for people; the writer has cut it to length."""
Digest = Annotated[str, Pattern("^[0-9a-f]{8,64}$")]
"""SHA-256 in hex, or a prefix of it."""
CellId = Annotated[str, Pattern("^[0-9a-f]{32}$")]
RunId = Annotated[str, Pattern("^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]
Instant = Annotated[
    str,
    Pattern("^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\\.([0-9]{3}|[0-9]{6}))?(Z|\\+00:00)$"),
]
"""UTC, RFC 3339."""
Scalar = Annotated[Any, Fragment(type=["string", "number", "boolean", "null"], maxLength=65536)]
