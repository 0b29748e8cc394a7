"""Import results of any columns by a :class:`ColumnMapping`: one row per candidate and workload.

Rows are those of a CSV, TSV or Parquet file, the lines of a JSONL file, or in a JSON document a list of objects or an
object of objects, whose keys are the column ``@key``. A column is a key of a row, or keys joined by dots.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from kernel_matrix.errors import suggestion
from kernel_matrix.model.enums import Dtype, Status
from kernel_matrix.sources.json_files import BadValueError, JsonFile, JsonNode
from kernel_matrix.sources.mapped.mapping_file import ColumnMapping, as_text
from kernel_matrix.sources.measurement import (
    DEFAULT,
    MEAN,
    ImportedMeasurement,
    ImportFormat,
    find_dtype,
    name_workload,
    with_baseline,
)

MAPPING: Final = "mapping"
"""Name of the format."""
KEY_COLUMN: Final = "@key"
"""Column with the key of a row, where the rows are the members of an object."""

_LEVEL = re.compile(r"level(\d{1,4})/")
_LONGEST_NAME: Final = 500
_SHOWN_COLUMNS: Final = 20


def mapped_format(mapping: ColumnMapping) -> ImportFormat:
    """Return the format of files whose columns ``mapping`` explains."""
    return ImportFormat(
        name=MAPPING,
        description="any CSV, TSV, Parquet, JSON or JSONL file, by --mapping",
        knows=lambda _document: False,
        read=partial(read, mapping=mapping),
    )


def read(file: JsonFile, mapping: ColumnMapping) -> list[ImportedMeasurement]:
    """Read one measurement per row; see :class:`ImportFormat`."""
    absent = {column for columns in mapping.columns.values() for column in columns}
    seen: dict[str, None] = {}

    def measured(row: JsonNode) -> ImportedMeasurement:
        if not isinstance(row.value, dict):
            raise row.fault("is not a row: an object of columns")
        if len(seen) < _SHOWN_COLUMNS:
            seen.update(dict.fromkeys(row.value))
        absent.difference_update([column for column in absent if _has(row.value, column)])
        return _Row(row, mapping).measurement()

    found = list(file.each(_rows(file, mapping.rows), measured))
    if absent and seen:
        column, known = min(absent), list(seen)[:_SHOWN_COLUMNS]
        raise BadValueError(f"has no column {column!r}; its columns are {', '.join(known)}{suggestion(column, known)}")
    repeated = sum(number - 1 for number in Counter(map(_cell_of, found)).values())
    if repeated:
        file.notes.append(
            f"{repeated} rows repeat problem, candidate and workload of others: the last row counts; map the column in"
            " which they differ as workload"
        )
    return _add_baselines(found, mapping.baseline_candidate)


def _rows(file: JsonFile, path: Sequence[str]) -> Iterator[JsonNode]:
    for document in file.documents():
        node = document
        for key in path:
            node = node[key]
        if isinstance(node.value, list):
            yield from node.elements()
        elif isinstance(node.value, dict) and node.value and all(isinstance(v, dict) for v in node.value.values()):
            for key, inner in node.members():
                yield JsonNode({KEY_COLUMN: key, **inner.value}, inner.keys, inner.line)
        else:
            yield node


def _find(row: dict[str, Any], column: str) -> Any:
    """Return the value of a column, which may be keys joined by dots; ``None`` if it is absent."""
    value: Any = row
    for key in (column,) if column in row else column.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _has(row: dict[str, Any], column: str) -> bool:
    return column in row or _find(row, column) is not None


class _Row:
    """One row and what its columns mean."""

    def __init__(self, node: JsonNode, mapping: ColumnMapping) -> None:
        self._node = node
        self._mapping = mapping

    def measurement(self) -> ImportedMeasurement:
        status, message = self._status()
        problem = self._required("problem").removesuffix(".py")
        level = _LEVEL.match(problem)
        times = self._times(needed="status" not in self._mapping.columns) if status is Status.PASSED else {}
        return ImportedMeasurement(
            problem=problem,
            candidate=self._required("candidate"),
            gpu=self._text("gpu"),
            workload=self._workload(),
            status=status,
            message=message,
            columns={
                "toolchain": self._text("toolchain"),
                "dtype": self._dtype(),
                "level": int(level[1]) if level else None,
                **times,
            },
            labels=(MEAN,) if times and self._mapping.is_mean else (),
        )

    def _cell(self, name: str) -> JsonNode | None:
        """Return the value of one of our columns, with its place; ``None`` if it is missing, empty or NaN."""
        columns = self._mapping.columns.get(name)
        return self._value(columns[0]) if columns else None

    def _value(self, column: str) -> JsonNode | None:
        value = _find(self._node.value, column)
        if value is None or (isinstance(value, str) and not value.strip()):
            return None
        if isinstance(value, float) and math.isnan(value):
            return None
        return JsonNode(value, (*self._node.keys, column), self._node.line)

    def _text(self, name: str) -> str | None:
        node = self._cell(name)
        if node is None:
            return self._mapping.constants.get(name)
        if not isinstance(node.value, (str, int, float)):
            raise node.fault("must be a text or a number")
        text = as_text(node.value)
        if len(text) > _LONGEST_NAME:
            raise node.fault(f"must have at most {_LONGEST_NAME} characters")
        return text

    def _required(self, name: str) -> str:
        text = self._text(name)
        if text is None:
            raise self._node.fault(f"lacks a {name}: column {self._mapping.columns[name][0]!r} is empty")
        return text

    def _workload(self) -> str:
        columns = self._mapping.columns.get("workload", ())
        values = {column: node.value for column in columns if (node := self._value(column)) is not None}
        if len(columns) <= 1:
            return (
                name_workload(*map(_plain, values.values()))
                if values
                else self._mapping.constants.get("workload", DEFAULT)
            )
        return name_workload([f"{column}={as_text(value)}" for column, value in values.items()])

    def _dtype(self) -> str | None:
        text = self._text("dtype")
        found = find_dtype(text) if text is not None else None
        if text is not None and found is None:
            raise self._node.fault(f"the dtype {text!r} is not known: {', '.join(dtype.value for dtype in Dtype)}")
        return found.value if found else None

    def _status(self) -> tuple[Status, str | None]:
        if "status" not in self._mapping.columns:
            return Status.PASSED, None
        text = self._required("status")
        status = self._mapping.statuses.get(text.lower(), Status.INCORRECT_VALUES)
        return status, None if status is Status.PASSED else f"the file says {text!r}"

    def _times(self, *, needed: bool) -> dict[str, Any]:
        """Return the columns of times.

        Args:
            needed: A row without a time says nothing, so that it is refused.
        """
        scale = self._mapping.ns_per_unit
        time, baseline, std, trials = map(self._number, ("time", "baseline_time", "std", "trials"))
        if time is None:
            if needed:
                raise self._node.fault(f"lacks a time: column {self._mapping.columns['time'][0]!r} is empty")
            return {}
        ns = time.amount(scale)
        columns: dict[str, Any] = {
            "candidate_median_ns": ns,
            "candidate_samples": trials.count() if trials else None,
            "spread_within": std.amount(scale) / ns if std and ns else None,
        }
        return {**columns, "baseline_median_ns": baseline.amount(scale)} if baseline else columns

    def _number(self, name: str) -> JsonNode | None:
        """Return a cell whose value may be a number in text, as all values of a CSV file are."""
        node = self._cell(name)
        if node is None or not isinstance(node.value, str):
            return node
        try:
            number = float(node.value)
        except ValueError:
            raise node.fault(f"must be a number; got {node.value[:_LONGEST_NAME]!r}") from None
        return None if math.isnan(number) else replace(node, value=number)


def _plain(value: Any) -> Any:
    return value if isinstance(value, (list, dict)) else as_text(value)


def _cell_of(one: ImportedMeasurement) -> tuple[Any, ...]:
    return (one.candidate, *_place_of(one))


def _place_of(one: ImportedMeasurement) -> tuple[Any, ...]:
    """Return what a time and its baseline have in common."""
    return (one.problem, one.workload, one.gpu, one.columns.get("dtype"), one.columns.get("toolchain"))


def _add_baselines(found: Sequence[ImportedMeasurement], candidate: str | None) -> list[ImportedMeasurement]:
    """Add the times of ``candidate`` as baselines of the others'."""
    if candidate is None:
        return list(found)
    baselines = {_place_of(one): one.columns for one in found if one.candidate == candidate and _is_timed(one)}
    if not baselines:
        names = sorted({one.candidate for one in found})
        raise BadValueError(f"no time of the baseline_candidate {candidate!r}{suggestion(candidate, names)}")
    return [
        with_baseline(one, baselines[_place_of(one)])
        if one.candidate != candidate and _is_timed(one) and _place_of(one) in baselines
        else one
        for one in found
    ]


def _is_timed(one: ImportedMeasurement) -> bool:
    return one.columns.get("candidate_median_ns") is not None
