"""Write what is made of descriptions: the schemas, and in ``docs/reference/records.md`` tables of columns and labels.

Run it after a change of a field of a record or of a label: ``python tools/describe_records.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import polars as pl

from kernel_matrix.results.described_columns import FieldColumn
from kernel_matrix.results.described_fields import field_docs
from kernel_matrix.results.json_form import format_schema, schemas
from kernel_matrix.results.labels import LABELS
from kernel_matrix.results.schema import COLUMNS

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reference" / "records.md"

UNITS = {
    "_flops_per_s": "FLOP/s",
    "flops_per_s": "FLOP/s",
    "bytes_per_s": "bytes/s",
    "_bytes": "bytes",
    "_bytes_max": "bytes",
    "_ns": "ns",
    "_s": "s",
    "_mhz": "MHz",
    "_w": "W",
    "_c": "°C",
    "_j": "J",
    "_mj": "mJ",
    "_percent": "%",
}
"""End of a column's name → unit of its values; the longest end that fits counts."""


def schema_texts() -> dict[Path, str]:
    """File → what it has to hold, for every schema that is made of descriptions."""
    return {ROOT / "schemas" / f"{name}.schema.json": format_schema(schema) for name, schema in schemas().items()}


def page_text(text: str) -> str:
    """``docs/reference/records.md`` with its tables of columns and of labels made anew."""
    for table in COLUMNS:
        text = between(text, f"<!-- columns of {table} -->", column_table(COLUMNS[table].values()), table)
    return between(text, "<!-- labels -->", label_table(), "labels")


def between(text: str, start: str, lines: Iterable[str], name: str) -> str:
    """``text`` with ``lines`` between the mark ``start`` and the end of ``name``."""
    end = f"<!-- end of {name} -->"
    before, _, rest = text.partition(start)
    _, _, behind = rest.partition(end)
    return "\n".join((f"{before}{start}", *lines, f"{end}{behind}"))


def label_table() -> Iterator[str]:
    """Lines of a Markdown table of labels."""
    yield "| label | belongs to | class | means | what to do |"
    yield "| --- | --- | --- | --- | --- |"
    for name, label in LABELS.items():
        yield f"| `{name}` | {label.scope.value} | {label.kind.value} | {label.meaning} | {label.advice} |"


def column_table(columns: Iterable[FieldColumn]) -> Iterator[str]:
    """Lines of a Markdown table of columns."""
    yield "| column | type | says |"
    yield "| --- | --- | --- |"
    for column in columns:
        kind = ", ".join(filter(None, (_type(column.dtype), _unit(column.name))))
        yield f"| `{column.name}` | {kind} | {_says(column)} |"


def _unit(name: str) -> str:
    ends = [end for end in UNITS if name.endswith(end)]
    return UNITS[max(ends, key=len)] if ends else ""


def _type(dtype: pl.DataType) -> str:
    if isinstance(dtype, pl.Enum):
        return "Enum"
    if isinstance(dtype, pl.List):
        return f"List of {_type(dtype.inner)}"  # type: ignore[arg-type]  # always an instance here
    return "Datetime, UTC" if isinstance(dtype, pl.Datetime) else str(dtype)


_docs = cache(field_docs)


def _says(column: FieldColumn) -> str:
    doc = _docs(column.owner)[column.field].replace("``", "`").replace("|", "\\|")
    return f"{doc.rstrip('.')}: `{column.key}`" if column.key else doc


def main() -> None:
    """Write the files."""
    for path, text in schema_texts().items():
        path.write_text(text, encoding="utf-8")
    PAGE.write_text(page_text(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
