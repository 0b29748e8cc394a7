"""A row of a comparison as text, the same on a terminal, in Markdown and in JUnit."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from kernel_matrix.analysis.comparison import Change, ComparedQuantity
from kernel_matrix.analysis.sentences import rough_percent
from kernel_matrix.report.number_format import one_line
from kernel_matrix.results.descriptions import describe_shapes


def percent(ratio: float | None) -> str:
    """Format a ratio as a change: ``+5.0 %`` for 1.05; empty for None."""
    if ratio is None or math.isnan(ratio):
        return ""
    return f"{100 * (ratio - 1):+.1f} %" if ratio < 1000 else "more than 1000×"


def quantity(value: float | None, of: ComparedQuantity) -> str:
    """Format a compared value: ``12.3 µs``, ``1.53×`` or ``24,500 cycles``; empty for None."""
    if value is None:
        return ""
    if of is ComparedQuantity.SPEEDUP:
        return f"{value:.3g}×"
    return f"{value / 1000:.4g} µs" if of is ComparedQuantity.TIME else f"{value:,.0f} cycles"


def named(row: Mapping[str, Any]) -> str:
    """Name a row by problem, workload, candidate and dtype; the candidate without its problem's folder."""
    candidate = str(row["candidate"]).removeprefix(f"{row['problem']}/")
    return one_line(" ".join(filter(None, (row["problem"], describe_shapes(row), candidate, row["dtype"]))))


def evidence(row: Mapping[str, Any], of: ComparedQuantity) -> str:
    """Write the evidence for a row's change in one line."""
    parts = [one_line(row["reason"])]
    if row["ratio"] is not None:
        parts.append(f"{quantity(row['base_value'], of)} → {quantity(row['new_value'], of)}, {percent(row['ratio'])}")
    if row["ratio_low"] is not None:
        parts.append(f"95 % interval {percent(row['ratio_low'])} to {percent(row['ratio_high'])}")
        parts.append(f"q {row['q']:.2g}, {row['test']}, {_sessions(row, 'base')} and {_sessions(row, 'new')}")
    if row["smallest"] is not None and row["change"] == Change.INCONCLUSIVE.value:
        parts.append(f"a change of {rough_percent(row['smallest'])} would have been found")
    if row["cycles_ratio"] is not None and of is ComparedQuantity.TIME:
        parts.append(f"cycles {percent(row['cycles_ratio'])}")
    if row["differs"]:
        parts.append(f"differs in {one_line(row['differs'])}")
    if row["environment"]:
        parts.append("moved with the environment")
    return "; ".join(part for part in parts if part)


def _sessions(row: Mapping[str, Any], side: str) -> str:
    """Count the sessions of a side, and its runs if there are several."""
    sessions, runs = row[f"{side}_sessions"], row[f"{side}_runs"]
    said = "1 session" if sessions == 1 else f"{sessions} sessions"
    return said if runs < 2 else f"{said} of {runs} runs"
