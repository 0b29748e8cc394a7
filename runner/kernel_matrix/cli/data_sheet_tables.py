"""``kernel-matrix gpus show``: data sheets as a table of all, a table of one, text for a prompt, or JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from kernel_matrix.api.gpu_data_sheets import (
    DTYPES,
    FEATURES,
    THREADS_PER_BLOCK,
    DataSheet,
    all_sheets,
    sheets_of,
)
from kernel_matrix.cli.output import console, print_json
from kernel_matrix.cli.table_options import TableOptions
from kernel_matrix.cli.table_writer import TableColumn, write_table

if TYPE_CHECKING:
    from rich.table import Table

UNKNOWN = "unknown"

_LACKS = "–"
"""Mark of a dtype that the tensor cores do not support."""

_BALANCED = ("bf16", "fp16", "fp32")
"""Dtypes for the balance of rate and bandwidth; the first with a known rate is used."""


def show_sheets(model: str | None, table: TableOptions, *, as_prompt: bool) -> None:
    """Print the sheets that match ``model``; without it, a table of all.

    Raises:
        UsageError: There is no such sheet.
    """
    sheets = all_sheets() if model is None else sheets_of(model)
    if table.as_json:
        print_json({"gpus": [sheet.document() for sheet in sheets]})
    elif as_prompt:
        console().print("\n\n".join(prompt(sheet) for sheet in sheets), markup=False)
    elif model is None or table != TableOptions():
        write_table(list(map(_overview_row, sheets)), _OVERVIEW, table)
        if table.for_people:
            console().print(f"fp32, bf16, fp8: dense TFLOP/s; {_LACKS}: not there. `gpus show MODEL` has the rest")
    else:
        for number, sheet in enumerate(sheets):
            console().print(*([""] if number else []), _sheet_table(sheet), sep="\n")


def prompt(sheet: DataSheet) -> str:
    """Return a sheet as a few lines of plain text, for a language model that writes a kernel for the GPU."""
    a, rows = sheet.architecture, _rows(sheet)
    heading = f"{sheet.name}: {a.vendor} {a.architecture}, {sheet.vendor.compute_capability} {a.compute_capability}"
    in_heading = ("architecture", sheet.vendor.compute_capability)
    facts = (f"- {fact}: {value}" for fact, value in rows.items() if fact not in in_heading)
    return "\n".join([heading, *facts])


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
        "SMs": _count(product.sms),
        "memory": _memory(sheet),
        "bandwidth": _bandwidth(sheet.bytes_per_s),
        **{
            dtype: _LACKS if _lacks(sheet, dtype) else _rate(sheet.ops_per_s[dtype])
            for dtype in ("fp32", "bf16", "fp8")
        },
        "L2": _bytes(product.l2_bytes),
        "power": _with_unit(product.board_power_w, "W"),
        "numbers": product.confidence,
    }


def _sheet_table(sheet: DataSheet) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, pad_edge=False)
    for key, value in {"GPU": sheet.name, **_rows(sheet)}.items():
        table.add_row(Text(key), Text(value))
    for number, source in enumerate(sheet.sources):
        table.add_row(Text("" if number else "sources"), Text(source))
    return table


def _rows(sheet: DataSheet) -> dict[str, str]:
    """Return the facts of a sheet as text, by name, without those that GPUs of the vendor do not have."""
    a, p, v = sheet.architecture, sheet.product, sheet.vendor
    warps = a.threads_per_sm // v.threads_per_warp
    unasked = "" if v.shared_bytes_unasked is None else f" ({_bytes(v.shared_bytes_unasked)} without opting in)"
    rows = {
        "architecture": a.architecture,
        v.compute_capability: p.compute_capability,
        f"{v.sm}s": _count(p.sms),
        f"per {v.sm}": f"{a.fp32_cores_per_sm} {v.fp32_cores}, {a.registers_per_sm} 32-bit registers, "
        f"{_bytes(a.shared_bytes_per_sm)} {v.shared_memory}",
        f"resident per {v.sm}": f"at most {a.threads_per_sm} threads ({warps} {v.warp}); blocks at most: "
        f"{_count(a.blocks_per_sm)}",
        "per block": f"at most {THREADS_PER_BLOCK} threads, {_bytes(a.shared_bytes_per_block)} {v.shared_memory}"
        f"{unasked}",
        "L2 cache": _bytes(p.l2_bytes),
        "L3 cache": None if p.l3_bytes is None else _bytes(p.l3_bytes),
        "memory": f"{_memory(sheet)}, bandwidth {_bandwidth(sheet.bytes_per_s)}",
        "dense peaks": f"{', '.join(_peaks(sheet))}; TFLOP/s, of int8 TOP/s",
        "balance": _balance(sheet),
        v.tensor_cores: None if a.tensor_cores is None else f"generation {a.tensor_cores}",
        "has": _features(f for f in v.features if f in a.features),
        "has not": _features(f for f in v.features if f not in a.features),
        "board power": _with_unit(p.board_power_w, "W"),
        v.link or "link": _link(p.nvlink_bytes_per_s) if v.link else None,
        v.instances or "instances": _yes_or_no(p.mig) if v.instances else None,
        "numbers": _confidence(sheet),
    }
    return {fact: value for fact, value in rows.items() if value is not None}


def _peaks(sheet: DataSheet) -> Iterator[str]:
    for dtype in DTYPES:
        if not _lacks(sheet, dtype):
            yield f"{dtype} {_rate(sheet.ops_per_s[dtype])}"


def _lacks(sheet: DataSheet, dtype: str) -> bool:
    """Return whether the tensor cores do not support ``dtype``, so that it has no rate."""
    return dtype in FEATURES and dtype not in sheet.architecture.features


def _features(names: Iterable[str]) -> str:
    return ", ".join(FEATURES[name] for name in names) or "none of them"


def _balance(sheet: DataSheet) -> str:
    """Return the operations per byte below which memory is the limit: the ridge point of the roofline."""
    known = ((dtype, rate) for dtype in _BALANCED if (rate := sheet.ops_per_s[dtype]) is not None)
    dtype, rate = next(known, ("", 0.0))
    if not rate or not sheet.bytes_per_s:
        return UNKNOWN
    return f"in {dtype}, memory limits what does less than {rate / sheet.bytes_per_s:.0f} FLOP per byte"


def _confidence(sheet: DataSheet) -> str:
    recalled = ", ".join(sheet.product.recalled)
    but = f", but recalled: {recalled}" if recalled else ""
    return f"{sheet.product.confidence}{but}; at boost clock, with the narrower accumulator where two differ"


def _count(number: int | None) -> str:
    return UNKNOWN if number is None else str(number)


def _with_unit(number: float | None, unit: str) -> str:
    return UNKNOWN if number is None else f"{number:g} {unit}"


def _bytes(number: int | None) -> str:
    if number is None:
        return UNKNOWN
    return f"{number / (1 << 20):.4g} MiB" if number >= 1 << 20 else f"{number / (1 << 10):.4g} KiB"


def _memory(sheet: DataSheet) -> str:
    return f"{_with_unit(sheet.product.memory_gb, 'GB')} {sheet.product.memory_kind or 'of unknown kind'}"


def _bandwidth(bytes_per_s: float | None) -> str:
    if bytes_per_s is None:
        return UNKNOWN
    return f"{bytes_per_s / 1e12:.4g} TB/s" if bytes_per_s >= 1e12 else f"{bytes_per_s / 1e9:.4g} GB/s"


def _rate(ops_per_s: float | None) -> str:
    return UNKNOWN if ops_per_s is None else f"{ops_per_s / 1e12:.5g}"


def _yes_or_no(answer: bool | None) -> str:
    return UNKNOWN if answer is None else "yes" if answer else "no"


def _link(bytes_per_s: float | None) -> str:
    if bytes_per_s is None:
        return UNKNOWN
    return f"{bytes_per_s / 1e9:.4g} GB/s, both directions together" if bytes_per_s else "no"
