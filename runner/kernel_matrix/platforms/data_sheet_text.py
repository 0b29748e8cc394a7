"""Data sheets of GPUs as text: their facts by name, and a few lines for a prompt of a language model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kernel_matrix.platforms.data_sheets import DTYPES, FEATURES, THREADS_PER_BLOCK, DataSheet

UNKNOWN = "unknown"

_YES_OR_NO = {True: "yes", False: "no", None: UNKNOWN}

_BALANCED = ("bf16", "fp16", "fp32")
"""Dtypes for the balance of rate and bandwidth; the first with a known rate is used."""


def describe_sheet(sheet: DataSheet) -> str:
    """Return a sheet as a few lines of plain text, for a language model that writes a kernel for the GPU."""
    a, rows = sheet.architecture, facts_of(sheet)
    heading = f"{sheet.name}: {a.vendor} {a.architecture}, {sheet.vendor.compute_capability} {a.compute_capability}"
    in_heading = ("architecture", sheet.vendor.compute_capability)
    facts = (f"- {fact}: {value}" for fact, value in rows.items() if fact not in in_heading)
    return "\n".join([heading, *facts])


def facts_of(sheet: DataSheet) -> dict[str, str]:
    """Return the facts of a sheet as text, by name, without those that GPUs of the vendor do not have."""
    a, p, v = sheet.architecture, sheet.product, sheet.vendor
    warps = a.threads_per_sm // v.threads_per_warp
    unasked = "" if v.shared_bytes_unasked is None else f" ({format_bytes(v.shared_bytes_unasked)} without opting in)"
    rows = {
        "architecture": a.architecture,
        v.compute_capability: p.compute_capability,
        f"{v.sm}s": format_count(p.sms),
        f"per {v.sm}": f"{a.fp32_cores_per_sm} {v.fp32_cores}, {a.registers_per_sm} 32-bit registers, "
        f"{format_bytes(a.shared_bytes_per_sm)} {v.shared_memory}",
        f"resident per {v.sm}": f"at most {a.threads_per_sm} threads ({warps} {v.warp}); blocks at most: "
        f"{format_count(a.blocks_per_sm)}",
        "per block": f"at most {THREADS_PER_BLOCK} threads, {format_bytes(a.shared_bytes_per_block)} {v.shared_memory}"
        f"{unasked}",
        "L2 cache": format_bytes(p.l2_bytes),
        "L3 cache": None if p.l3_bytes is None else format_bytes(p.l3_bytes),
        "memory": f"{format_memory(sheet)}, bandwidth {format_bandwidth(sheet.bytes_per_s)}",
        "dense peaks": f"{', '.join(_peaks(sheet))}; TFLOP/s, of int8 TOP/s",
        "balance": _balance(sheet),
        v.tensor_cores: None if a.tensor_cores is None else f"generation {a.tensor_cores}",
        "has": _features(f for f in v.features if f in a.features),
        "has not": _features(f for f in v.features if f not in a.features),
        "board power": format_with_unit(p.board_power_w, "W"),
        v.link or "link": _link(p.nvlink_bytes_per_s) if v.link else None,
        v.instances or "instances": _YES_OR_NO[p.mig] if v.instances else None,
        "numbers": _confidence(sheet),
    }
    return {fact: value for fact, value in rows.items() if value is not None}


def _peaks(sheet: DataSheet) -> Iterator[str]:
    for dtype in DTYPES:
        if not lacks(sheet, dtype):
            yield f"{dtype} {format_rate(sheet.ops_per_s[dtype])}"


def lacks(sheet: DataSheet, dtype: str) -> bool:
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


def format_count(number: int | None) -> str:
    """Return a number; ``unknown`` for None."""
    return UNKNOWN if number is None else str(number)


def format_with_unit(number: float | None, unit: str) -> str:
    """Return a number with its unit; ``unknown`` for None."""
    return UNKNOWN if number is None else f"{number:g} {unit}"


def format_bytes(number: int | None) -> str:
    """Return a size of on-chip memory; ``unknown`` for None."""
    if number is None:
        return UNKNOWN
    return f"{number / (1 << 20):.4g} MiB" if number >= 1 << 20 else f"{number / (1 << 10):.4g} KiB"


def format_memory(sheet: DataSheet) -> str:
    """Return size and kind of the device's memory."""
    return f"{format_with_unit(sheet.product.memory_gb, 'GB')} {sheet.product.memory_kind or 'of unknown kind'}"


def format_bandwidth(bytes_per_s: float | None) -> str:
    """Return a bandwidth; ``unknown`` for None."""
    if bytes_per_s is None:
        return UNKNOWN
    return f"{bytes_per_s / 1e12:.4g} TB/s" if bytes_per_s >= 1e12 else f"{bytes_per_s / 1e9:.4g} GB/s"


def format_rate(ops_per_s: float | None) -> str:
    """Return a rate in 10¹² per second, without the unit; ``unknown`` for None."""
    return UNKNOWN if ops_per_s is None else f"{ops_per_s / 1e12:.5g}"


def _link(bytes_per_s: float | None) -> str:
    if bytes_per_s is None:
        return UNKNOWN
    return f"{bytes_per_s / 1e9:.4g} GB/s, both directions together" if bytes_per_s else "no"
