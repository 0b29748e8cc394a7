"""Rows and samples, collected column by column until they become a table with exactly its schema."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from kernel_matrix.measure.timed import COLD, contestant_of
from kernel_matrix.results.described_columns import Row
from kernel_matrix.results.reading import Document, whole
from kernel_matrix.results.schema import SAMPLES


class TableRows:
    """Rows of one table, in the order they were appended; a missing column becomes null."""

    def __init__(self, schema: Mapping[str, pl.DataType]) -> None:
        self._schema = schema
        self._columns: dict[str, list[Any]] = {name: [] for name in schema}
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def append(self, row: Row) -> None:
        """Add ``row``."""
        for name, column in self._columns.items():
            column.append(row.get(name))
        self._length += 1

    def frame(self) -> pl.DataFrame:
        """Return the rows so far as a table with exactly the schema."""
        return frame(self._columns, self._schema)


_PER_BLOCK = (
    *("record", "session", "workload"),
    *("role", "contestant", "regime", "calls_per_sample"),
    *("block", "block_started_ns", "block_ended_ns", "sm_clock_mhz"),
)
"""Columns of ``samples`` that have one value per block, in table order."""


class SampleColumns:
    """Samples of many records as flat columns, filled workload by workload."""

    def __init__(self) -> None:
        self._blocks: dict[str, list[Any]] = {name: [] for name in _PER_BLOCK}
        self._calls: list[int] = []
        self._device_ns = array("q")
        self._wall_ns = array("q")
        self._discarded: dict[int, str] = {}

    def __len__(self) -> int:
        return len(self._device_ns)

    def add(self, record: Document, *, key: int) -> None:
        """Append every sample of ``record``, whose number within the tables is ``key``."""
        for session in record["sessions"]:
            for workload in session["workloads"]:
                if workload["blocks"]:
                    self._add_blocks((key, session["session"], workload["name"]), workload["blocks"])

    def _add_blocks(self, where: Sequence[Any], blocks: Sequence[Mapping[str, Any]]) -> None:
        rows: list[tuple[Any, ...]] = []
        device_ns: list[int] = []
        wall_ns: list[int] = []
        for block in blocks:
            for index, cause in block["discarded"]:
                self._discarded[len(self) + len(device_ns) + int(index)] = cause
            whose = (block["role"], contestant_of(block), block.get("regime", COLD), block.get("calls_per_sample", 1))
            when = (block["index"], block["started_ns"], block["ended_ns"], block.get("sm_clock_mhz"))
            rows.append((*where, *whose, *when))
            self._calls.append(len(block["device_ns"]))
            device_ns += block["device_ns"]
            wall_ns += block["wall_ns"]
        for name, values in zip(self._blocks, zip(*rows, strict=True), strict=True):
            self._blocks[name] += values
        self._device_ns.extend(whole(device_ns))
        self._wall_ns.extend(whole(wall_ns))

    def frame(self) -> pl.DataFrame:
        """Return the samples so far as a table with the schema :data:`~kernel_matrix.results.schema.SAMPLES`."""
        calls = pl.Series("index", self._calls, dtype=pl.Int32)
        per_block = frame(self._blocks, {name: SAMPLES[name] for name in self._blocks})
        discarded = pl.repeat(None, len(self), dtype=pl.String, eager=True)
        repeated = per_block.with_columns(pl.int_ranges(calls, dtype=pl.Int32).alias("index")).explode("index")
        filled = repeated.filter(pl.col("index").is_not_null()).with_columns(
            pl.Series("device_ns", np.asarray(self._device_ns)),
            pl.Series("wall_ns", np.asarray(self._wall_ns)),
            discarded.scatter(list(self._discarded), list(self._discarded.values())).alias("discarded"),
        )
        return filled.select(list(SAMPLES))


def frame(columns: Mapping[str, Sequence[Any]], schema: Mapping[str, pl.DataType]) -> pl.DataFrame:
    """Return ``columns`` as a table with exactly ``schema``; raise if a value does not fit its type."""
    return pl.DataFrame([_series(name, columns[name], dtype) for name, dtype in schema.items()])


def _series(name: str, values: Sequence[Any], dtype: pl.DataType) -> pl.Series:
    if not isinstance(dtype, pl.List):
        return _converted(name, values, dtype)
    # polars creates a series for each list, which is slow; most lists of a column are equal, so convert each only once.
    lists = [None if value is None else tuple(value) for value in values]
    distinct = {one: index for index, one in enumerate(dict.fromkeys(lists))}
    return _converted(name, list(distinct), dtype).gather([distinct[one] for one in lists])


def _converted(name: str, values: Sequence[Any], dtype: pl.DataType) -> pl.Series:
    try:
        return pl.Series(name, values, dtype=dtype, strict=True)
    except (TypeError, OverflowError):
        # JSON allows 3.0 as an integer and 10**30 as a number; polars accepts neither in strict mode.
        return pl.Series(name, [_convert_exactly(value, dtype) for value in values], dtype=dtype, strict=True)


def _convert_exactly(value: Any, dtype: pl.DataType) -> Any:
    if value is None or not (dtype.is_numeric() or dtype.is_nested()):
        return value
    if isinstance(dtype, pl.List):
        return [_convert_exactly(inner, dtype.inner) for inner in value]  # type: ignore[arg-type]  # always an instance here
    return int(value) if dtype.is_integer() else float(value)
