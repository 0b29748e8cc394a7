"""``kernel-matrix gpus show``: data sheets as a table of all, a table of one, text for a prompt, or JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_matrix.api.gpu_data_sheets import (
    DataSheet,
    all_sheets,
    describe_sheet,
    facts_of,
    format_bandwidth,
    format_bytes,
    format_count,
    format_memory,
    format_rate,
    format_with_unit,
    lacks,
    sheets_of,
)
from kernel_matrix.cli.output import console, print_json
from kernel_matrix.cli.table_options import TableOptions
from kernel_matrix.cli.table_writer import TableColumn, write_table

if TYPE_CHECKING:
    from rich.table import Table

_LACKS = "–"
"""Mark of a dtype that the tensor cores do not support."""


def show_sheets(model: str | None, table: TableOptions, *, as_prompt: bool) -> None:
    """Print the sheets that match ``model``; without it, a table of all.

    Raises:
        UsageError: There is no such sheet.
    """
    sheets = all_sheets() if model is None else sheets_of(model)
    if table.as_json:
        print_json({"gpus": [sheet.document() for sheet in sheets]})
    elif as_prompt:
        console().print("\n\n".join(describe_sheet(sheet) for sheet in sheets), markup=False)
    elif model is None or table != TableOptions():
        write_table(list(map(_overview_row, sheets)), _OVERVIEW, table)
        if table.for_people:
            console().print(f"fp32, bf16, fp8: dense TFLOP/s; {_LACKS}: not there. `gpus show MODEL` has the rest")
    else:
        for number, sheet in enumerate(sheets):
            console().print(*([""] if number else []), _sheet_table(sheet), sep="\n")


_OVERVIEW = (
    TableColumn(name="GPU", shortest=20),
    TableColumn(name="architecture", rank=2),
    TableColumn(name="compute", rank=1),
    *(TableColumn(name=name) for name in ("SMs", "memory", "bandwidth", "fp32", "bf16", "fp8")),
    *(TableColumn(name=name, rank=rank) for rank, name in enumerate(("L2", "power", "numbers"), start=3)),
)


def _overview_row(sheet: DataSheet) -> dict[str, str]:
    product = sheet.product
    return {
        "GPU": sheet.name,
        "architecture": sheet.architecture.architecture,
        "compute": product.compute_capability,
        "SMs": format_count(product.sms),
        "memory": format_memory(sheet),
        "bandwidth": format_bandwidth(sheet.bytes_per_s),
        **{
            dtype: _LACKS if lacks(sheet, dtype) else format_rate(sheet.ops_per_s[dtype])
            for dtype in ("fp32", "bf16", "fp8")
        },
        "L2": format_bytes(product.l2_bytes),
        "power": format_with_unit(product.board_power_w, "W"),
        "numbers": product.confidence,
    }


def _sheet_table(sheet: DataSheet) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, pad_edge=False)
    for key, value in {"GPU": sheet.name, **facts_of(sheet)}.items():
        table.add_row(Text(key), Text(value))
    for number, source in enumerate(sheet.sources):
        table.add_row(Text("" if number else "sources"), Text(source))
    return table
