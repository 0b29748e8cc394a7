"""A row of a comparison in words, the same on a terminal, in Markdown and in JUnit."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from kernel_matrix.analysis.comparison import ComparedQuantity
from kernel_matrix.report.number_format import one_line


def percent(ratio: float | None) -> str:
    """``+5.0 %`` for 1.05; empty for null."""
    if ratio is None or math.isnan(ratio):
        return ""
    return f"{100 * (ratio - 1):+.1f} %" if ratio < 1000 else "beyond all measure"


def quantity(value: float | None, of: ComparedQuantity) -> str:
    """``12.3 µs``, ``1.53×`` or ``24,500 cycles``; empty for null."""
    if value is None:
        return ""
    if of is ComparedQuantity.SPEEDUP:
        return f"{value:.3g}×"
    return f"{value / 1000:.4g} µs" if of is ComparedQuantity.TIME else f"{value:,.0f} cycles"


def named(row: Mapping[str, Any]) -> str:
    """Problem, workload, candidate and dtype; the candidate without its problem."""
    workload = f" [{row['workload']}]" if row["workload"] else ""
    candidate = str(row["candidate"]).removeprefix(f"{row['problem']}/")
    return one_line(f"{row['problem']}{workload} {candidate} {row['dtype']}")


def evidence(row: Mapping[str, Any], of: ComparedQuantity) -> str:
    """All that speaks for the row's change, in one line."""
    said = [one_line(row["reason"])]
    if row["ratio"] is not None:
        said.append(f"{quantity(row['base_value'], of)} → {quantity(row['new_value'], of)}, {percent(row['ratio'])}")
    if row["ratio_low"] is not None:
        said.append(f"95 % interval {percent(row['ratio_low'])} to {percent(row['ratio_high'])}")
        said.append(f"q {row['q']:.2g}, {row['test']}, {row['base_sessions']} and {row['new_sessions']} sessions")
    if row["cycles_ratio"] is not None and of is ComparedQuantity.TIME:
        said.append(f"cycles {percent(row['cycles_ratio'])}")
    if row["differs"]:
        said.append(f"differs in {one_line(row['differs'])}")
    if row["environment"]:
        said.append("moved with the environment")
    return "; ".join(part for part in said if part)
