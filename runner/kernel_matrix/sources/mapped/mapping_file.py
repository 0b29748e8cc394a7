"""The mapping file, which says what the columns of the user's own results mean; see docs/reference/import.md."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from kernel_matrix.model.enums import Dtype, Status
from kernel_matrix.sources.document import TomlDocument, read_document
from kernel_matrix.sources.measurement import NS_PER_UNIT, find_dtype

_TIMES: Final = ("time", "baseline_time", "std")


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnMapping:
    """Meaning of the columns of a file."""

    columns: Mapping[str, tuple[str, ...]]
    """Our name → columns of the file; several only for ``workload``."""
    constants: Mapping[str, str] = field(default_factory=dict)
    """Our name → the value of all rows."""
    rows: tuple[str, ...] = ()
    """Keys that lead to the rows within a JSON document; none if the document itself holds them."""
    ns_per_unit: float = 1.0
    is_mean: bool = False
    """The times are means, not medians."""
    statuses: Mapping[str, Status] = field(default_factory=dict)
    """Value of the column ``status``, as text in lower case → status; any other value is ``incorrect_values``."""
    baseline_candidate: str | None = None
    """Candidate whose times are the baseline of the others'."""


def load_mapping(path: Path) -> ColumnMapping:
    """Read and check a mapping file.

    Raises:
        UsageError: It cannot be read or is invalid; with the line and the key of the first fault.
    """
    document = read_document(path, "mapping")
    _check(document)
    values = document.values
    times = values.get("time", {})
    return ColumnMapping(
        columns={
            name: (column,) if isinstance(column, str) else tuple(column) for name, column in values["columns"].items()
        },
        constants=values.get("constants", {}),
        rows=tuple(values["rows"].split(".")) if "rows" in values else (),
        ns_per_unit=NS_PER_UNIT[times.get("unit", "ns")],
        is_mean=times.get("statistic") == "mean",
        statuses={
            as_text(value).lower(): Status(status)
            for status, listed in values.get("status", {}).items()
            for value in listed
        },
        baseline_candidate=values.get("baseline_candidate"),
    )


def as_text(value: Any) -> str:
    """Return a plain value as a person would write it: ``true``, ``19`` for 19.0, or the text itself."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).strip()


def _check(document: TomlDocument) -> None:
    """Check what the schema cannot express."""
    columns, constants = document.values["columns"], document.values.get("constants", {})
    for name in columns.keys() & constants.keys():
        raise document.error(f"is in [columns] too; a {name} is a column or the same for all rows", "constants", name)
    for name in ("problem", "candidate"):
        if name not in columns and name not in constants:
            raise document.error(f"missing; name the column of the {name}, or give it in [constants]", "columns", name)
    if "time" not in columns and "status" not in columns:
        raise document.error("missing; without a time and a status, a row says nothing", "columns", "time")
    for name in _TIMES:
        if name in columns and "time" not in document.values:
            raise document.error(f"needs [time] with unit and statistic: of what is column {columns[name]!r}?", "time")
        if name in columns and "time" not in columns:
            raise document.error("needs a column time too", "columns", name)
    if ("status" in columns) != ("status" in document.values):
        reason = "a column status and [status] with the values that mean passed need each other"
        raise document.error(reason, "status")
    if "dtype" in constants and find_dtype(constants["dtype"]) is None:
        allowed = ", ".join(dtype.value for dtype in Dtype)
        raise document.error(f"{constants['dtype']!r} is not known; allowed: {allowed}", "constants", "dtype")
    _check_statuses(document)


def _check_statuses(document: TomlDocument) -> None:
    first: dict[str, str] = {}
    for status, listed in document.values.get("status", {}).items():
        for value in listed:
            other = first.setdefault(as_text(value).lower(), status)
            if other != status:
                raise document.error(f"{value!r} is a value of {other} too", "status", status)
