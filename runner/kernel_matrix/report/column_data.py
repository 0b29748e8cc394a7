"""Encoding of tables for the page: by column, each distinct text once, numbers cut to six digits."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import orjson
import polars as pl

from kernel_matrix.results.descriptions import visible

_DIGITS: Final = 6
"""Significant digits of a number on the page."""
_LEAST_FOLDED: Final = 3
"""Rows from which on a column of one value is written once."""
_INERT: Final = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
"""Characters that could end a script or start markup → their JSON escapes."""


def encode_columns(frame: pl.DataFrame) -> dict[str, Any]:
    """Encode ``frame`` by column: ``{"rows": n, "columns": [{"name", "words", "codes"} | {"name", "values"}]}``.

    Of a column that is the same in all of several rows, ``all`` with the one code or value stands for them.
    For text, ``codes[i]`` is a place in ``words``, or null. Numbers are values; those that JSON cannot express are the
    texts ``inf``, ``-inf`` and ``nan``.
    """
    return {"rows": frame.height, "columns": [{"name": column.name, **_folded(_column(column))} for column in frame]}


def _folded(coded: dict[str, Any]) -> dict[str, Any]:
    name = "codes" if "codes" in coded else "values"
    entries = coded[name]
    if len(entries) < _LEAST_FOLDED or any(entry != entries[0] for entry in entries):
        return coded
    return {key: value for key, value in coded.items() if key != name} | {"all": entries[0]}


def embed_json(document: Mapping[str, Any]) -> str:
    """Write ``document`` as JSON that is safe inside a ``<script>`` for any text it holds."""
    text = orjson.dumps(document).decode()
    for character, written in _INERT.items():
        text = text.replace(character, written)
    return text


def _column(column: pl.Series) -> dict[str, Any]:
    if column.dtype == pl.Boolean or column.dtype.is_integer():
        return {"values": column.to_list()}
    if column.dtype.is_float():
        rounded = column.cast(pl.Float64).round_sig_figs(_DIGITS)
        return {"values": [_json_number(value) for value in rounded.to_list()]}
    text = pl.select(_as_text(pl.lit(column), column.dtype)).to_series()
    words = text.drop_nulls().unique(maintain_order=True)
    codes = text.replace_strict(words, pl.Series(range(len(words)), dtype=pl.Int64), default=None)
    return {"words": list(map(visible, words.to_list())), "codes": codes.cast(pl.Int64).to_list()}


def _json_number(value: float | None) -> float | int | str | None:
    if value is None:
        return None
    if not math.isfinite(value):
        return str(value)
    return int(value) if value == int(value) and abs(value) < 1e15 else value


def _as_text(column: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    """Convert to text: times to the minute, lists joined by commas."""
    if dtype == pl.Datetime:
        return column.dt.strftime("%Y-%m-%d %H:%M")
    if isinstance(dtype, pl.List):
        return column.cast(pl.List(pl.String)).list.join(", ")
    if isinstance(dtype, pl.Struct):
        return column.struct.json_encode()
    return column.cast(pl.String)
