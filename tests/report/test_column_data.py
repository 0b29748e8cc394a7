"""Encoding of tables for the page."""

from __future__ import annotations

import json
from datetime import datetime, timezone

import polars as pl
import pytest

from kernel_matrix.report.column_data import embed_json, encode_columns


def column(values, dtype=None):
    return encode_columns(pl.DataFrame({"x": pl.Series(values, dtype=dtype)}))["columns"][0]


def test_words_are_told_once_and_null_stays_null():
    assert column(["b", None, "a", "b"]) == {"name": "x", "words": ["b", "a"], "codes": [0, None, 1, 0]}


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ([None] * 3, {"words": [], "all": None}),
        (["a"] * 3, {"words": ["a"], "all": 0}),
        ([2.0] * 3, {"all": 2}),
        ([True] * 3, {"all": True}),
        ([1, 1, None], {"values": [1, 1, None]}),
        (["a"] * 2, {"words": ["a"], "codes": [0, 0]}),
    ],
)
def test_what_is_equal_in_all_rows_is_written_once(values, shown):
    assert column(values, pl.String if values[0] is None else None) == {"name": "x", **shown}


@pytest.mark.parametrize(
    ("values", "dtype", "shown"),
    [
        ([1.23456789, None, 2.0], None, [1.23457, None, 2]),
        ([float("inf"), float("-inf"), float("nan")], None, ["inf", "-inf", "nan"]),
        ([2**40, 3], pl.Int64, [2**40, 3]),
        ([True, None], None, [True, None]),
    ],
)
def test_numbers_have_six_digits_and_inf_and_nan_are_text(values, dtype, shown):
    assert column(values, dtype)["values"] == shown
    json.dumps(column(values, dtype), allow_nan=False)


@pytest.mark.parametrize(
    ("values", "dtype", "words"),
    [
        ([["a", "b"], []], pl.List(pl.String), ["a, b", ""]),
        ([datetime(2026, 3, 1, 22, 5, tzinfo=timezone.utc)], pl.Datetime("us", "UTC"), ["2026-03-01 22:05"]),
        (["A"], pl.Enum(["A", "B"]), ["A"]),
        ([{"a": 1}], pl.Struct({"a": pl.Int64}), ['{"a":1}']),
        ([datetime(2026, 3, 1, tzinfo=timezone.utc).date()], pl.Date, ["2026-03-01"]),
    ],
)
def test_everything_else_becomes_text(values, dtype, words):
    assert column(values, dtype)["words"] == words


@pytest.mark.parametrize("text", ["</script><script>x()", "<!-- <script>", "a & b", "line\u2028end\u2029", "ядро 内核"])
def test_embedded_json_is_equal_and_holds_no_markup(text):
    written = embed_json({"x": text})
    assert json.loads(written) == {"x": text}
    assert not set("<>&\u2028\u2029") & set(written)
