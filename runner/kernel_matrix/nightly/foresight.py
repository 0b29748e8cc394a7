"""How small a slow-down a night can find, foretold from its baseline."""

from __future__ import annotations

from typing import Final

import polars as pl

from kernel_matrix.analysis.compare import compare
from kernel_matrix.analysis.outcomes import CELL_KEY
from kernel_matrix.errors import NothingSelectedError
from kernel_matrix.results.attempts import latest_attempts

FIND: Final = 0.05
"""Slow-down that a night is expected to find in most cells, as a share."""


def warn_of_noise(base: pl.LazyFrame, sessions: int, find: float) -> str:
    """Return a warning if a slow-down of ``find`` would be missed in half of the cells; empty if it would be found.

    Args:
        base: The baseline, with the columns of ``CELLS``.
        sessions: Sessions that the night measures of each cell.
        find: The slow-down, as a share.
    """
    key = [name for name in CELL_KEY if name != "workload"]
    # The baseline's latest run stands for the night: a night like it has its noise and its cells.
    latest = latest_attempts(base, (*key, "host_id", "gpu_uuid")).select("record")
    night = base.join(latest, on="record", how="semi").filter(pl.col("session") < sessions)
    night = night.with_columns(run_id=pl.lit("night"))  # else its sessions would be compared in pairs
    try:
        timed = compare(base, night).rows.filter(pl.col("p").is_not_null())
    except NothingSelectedError:
        return ""
    missed = timed.filter(pl.col("smallest").fill_null(float("inf")) > find)
    if missed.height * 2 <= timed.height:
        return ""
    middle = timed["smallest"].median()
    usual = f"of {100 * middle:.2g} %" if isinstance(middle, float) else "of any size"
    return (
        f"a slow-down of {100 * find:g} % would be missed in {missed.height} of {timed.height} timed rows; one {usual}"
        " is found in half of them; more sessions, or a baseline of several nights, find smaller ones"
    )
