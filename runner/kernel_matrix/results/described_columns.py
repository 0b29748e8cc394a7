"""Columns and rows of tables, derived from field descriptions; see :mod:`kernel_matrix.model.fields`."""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

import orjson
import polars as pl

from kernel_matrix.model.fields import INT32, INT64, Column, Columns, KeyColumns, Range
from kernel_matrix.model.instants import parse_instant
from kernel_matrix.results.described_fields import Description, describe, described_fields

Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldColumn:
    """One column of a table and the field it comes from."""

    name: str
    dtype: pl.DataType
    owner: type
    """Class that has the field."""
    field: str
    key: str = ""
    """Key of a mapping whose value becomes the column; empty for other fields."""


def columns_of(
    kind: type, *, table: str = "cells", prefix: str = "", every: bool = False, inner: bool = True
) -> Iterator[FieldColumn]:
    """Yield the columns of a dataclass's fields, in the order of the fields.

    Args:
        kind: The dataclass.
        table: Name of the table.
        prefix: Prefix of the column names.
        every: Also make a column of each field that has no :class:`Column`.
        inner: Also make columns of the fields of nested objects.
    """
    for name, field in described_fields(kind).items():
        column, inside, keys = _marks(field, table=table, every=every)
        if keys is not None:
            for key, one in keys.columns.items():
                values = describe(typing.get_args(field.kind)[1])
                yield FieldColumn(name=one, dtype=_dtype(values, Column(form="item")), owner=kind, field=name, key=key)
        elif inside is not None and inner:
            yield from columns_of(_object(field, inside), table=table, prefix=inside.prefix, every=inside.every)
        elif column is not None:
            yield FieldColumn(name=prefix + (column.name or name), dtype=_dtype(field, column), owner=kind, field=name)


class RowReader:
    """Reader of the columns of a dataclass, including nested objects, from its JSON form."""

    def __init__(self, kind: type, *, table: str = "cells", prefix: str = "", every: bool = False) -> None:
        self._columns: list[str] = []
        self._names: list[str] = []
        self._converted: list[tuple[str, str, Callable[[Any], Any]]] = []
        self._keyed: list[tuple[str, Mapping[str, str]]] = []
        self._inner: list[tuple[str, str, RowReader]] = []
        for name, field in described_fields(kind).items():
            column, inside, keys = _marks(field, table=table, every=every)
            if keys is not None:
                self._keyed.append((name, keys.columns))
            elif inside is not None:
                reader = RowReader(_object(field, inside), table=table, prefix=inside.prefix, every=inside.every)
                self._inner.append((name, inside.key, reader))
            elif column is not None and column.form:
                self._converted.append((prefix + (column.name or name), name, _CONVERT[column.form]))
            elif column is not None:
                self._columns.append(prefix + (column.name or name))
                self._names.append(name)

    def __call__(self, document: Mapping[str, Any]) -> Row:
        """Return the row of ``document``; the column of an absent value is ``None`` or missing."""
        row: Row = {}
        self._read(document, row)
        return row

    def _read(self, document: Mapping[str, Any], row: Row) -> None:
        row.update(zip(self._columns, map(document.get, self._names)))  # noqa: B905  # as many, and read per record
        for column, name, convert in self._converted:
            row[column] = convert(document[name])
        for name, columns in self._keyed:
            values = document.get(name) or {}
            row.update(zip(columns.values(), map(values.get, columns)))  # noqa: B905  # as above
        for name, key, reader in self._inner:
            values = document.get(name)
            if values is not None and key:
                values = values.get(key)
            if values is not None:
                reader._read(values, row)  # noqa: SLF001  # of this class


def _as_json(values: Mapping[str, Any]) -> str:
    return orjson.dumps(values, option=orjson.OPT_SORT_KEYS).decode()


_CONVERT: Mapping[str, Callable[[Any], Any]] = {"count": len, "json": _as_json, "instant": parse_instant}
_FORM_TYPES: Mapping[str, pl.DataType] = {
    "count": pl.Int32(),
    "json": pl.String(),
    "instant": pl.Datetime("us", "UTC"),
    "unsigned": pl.UInt32(),
}
_PLAIN_TYPES: Mapping[type, pl.DataType] = {str: pl.String(), bool: pl.Boolean(), float: pl.Float64()}


def _marks(field: Description, *, table: str, every: bool) -> tuple[Column | None, Columns | None, KeyColumns | None]:
    """Return the marks that turn ``field`` into columns of ``table``."""
    column, inside, keys = field.mark(Column), field.mark(Columns), field.mark(KeyColumns)
    if every and column is None and inside is None and keys is None:
        column = Column(tables=(table,))
    if not every and column is not None and table not in column.tables:
        column = None
    if keys is not None and table not in keys.tables:
        keys = None
    return column, inside, keys


def _object(field: Description, inside: Columns) -> type:
    """Return the dataclass whose fields become columns."""
    found = describe(typing.get_args(field.kind)[1]) if inside.key else field
    if found.dataclass is None:
        raise TypeError(f"no dataclass describes {field.kind}")
    return found.dataclass


def _dtype(field: Description, column: Column) -> pl.DataType:
    if column.words:
        return pl.Enum(column.words)
    if column.form in _FORM_TYPES:
        return _FORM_TYPES[column.form]
    if typing.get_origin(field.kind) is tuple:
        item = _dtype(describe(typing.get_args(field.kind)[0]), Column())
        return item if column.form == "item" else pl.List(item)
    if field.kind is int:
        limits = field.mark(Range) or Range(0, INT64)
        return pl.Int32() if limits.high <= INT32 and limits.low >= -INT32 else pl.Int64()
    if issubclass(field.kind, Enum):
        return pl.Enum([word.value for word in field.kind])
    return _PLAIN_TYPES[field.kind]
