"""Predictions of data sheets: how much faster one GPU is than another on memory-bound and compute-bound work.

Work that is limited by memory should be faster by the ratio of bandwidths, work that is limited by arithmetic by the
ratio of the dtype's peak rates. Where the operations and bytes of a call are known, the roofline says which of them
limits it on each GPU (Williams, Waterman and Patterson, *Roofline*, CACM 52, 2009), and what its ratio should be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import polars as pl

from kernel_matrix.analysis.common_work import CommonWork
from kernel_matrix.analysis.sentences import listed
from kernel_matrix.analysis.standings import Floats, Places
from kernel_matrix.errors import UsageError
from kernel_matrix.platforms.data_sheets import all_sheets, sheets_of
from kernel_matrix.platforms.peaks import peak_in_table

LIMITS: Final = ("memory", "compute", "memory on one", "neither", "unknown")
"""What limits a workload on a pair of GPUs: memory on both, arithmetic on both, one of them on each; ``neither`` if it
reaches less than :data:`LEAST_SHARE` of its roofline on both."""
MEMORY, COMPUTE, MIXED, NEITHER, UNKNOWN = range(len(LIMITS))
LEAST_SHARE: Final = 0.1
"""Share of the roofline below which launches, latency or the kernel itself limit, not the hardware's rates."""
_LISTED: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardRates:
    """Rates of a GPU by its data sheet."""

    bytes_per_s: float | None = None
    ops_per_s: Mapping[str, float | None] = field(default_factory=dict)
    """Dtype → dense operations/s."""
    reason: str = ""
    """Why no rate is known; empty if one is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairPrediction:
    """Predictions for the rows of a pair of GPUs; arrays with one value per row, NaN where there is none."""

    memory: float | None
    """Ratio of bandwidths."""
    compute: Floats
    """Ratio of the peak rates of the row's dtype."""
    limit: Places
    """Place in :data:`LIMITS`."""
    log_predicted: Floats
    """Logarithm of the ratio that the roofline predicts."""
    share: Floats
    """Share of the roofline that it reaches on the first GPU."""
    share_than: Floats
    """The same on the second."""
    impossible: int
    """Rows beyond their roofline, whose limit is therefore unknown."""


def boards_of(cells: pl.LazyFrame) -> dict[str, list[str]]:
    """List the boards, by the driver's names, on which each GPU's cells were measured."""
    seen = cells.select("gpu", "gpu_name").unique().drop_nulls().sort("gpu", "gpu_name").collect()
    return dict(seen.group_by("gpu", maintain_order=True).agg("gpu_name").iter_rows())


def board_rates(gpu: str, boards: Sequence[str]) -> BoardRates:
    """Look up the data sheets of a GPU.

    Args:
        gpu: Its name in the matrix; used only if no board is known.
        boards: Boards that were measured under this name.
    """
    if boards:
        found = {board: _of_board(board) for board in boards}
        unknown = [board for board, rates in found.items() if rates is None]
        if unknown:
            return BoardRates(reason=f"there is no data sheet of {listed(unknown, _LISTED)}")
        reason = f"{gpu} was measured on boards with different rates: {listed(boards, _LISTED)}"
    else:
        try:
            sheets = sheets_of(gpu)
        except UsageError:
            return BoardRates(reason=f"the results do not name the board of {gpu}")
        found = {sheet.name: BoardRates(bytes_per_s=sheet.bytes_per_s, ops_per_s=sheet.ops_per_s) for sheet in sheets}
        reason = f"the results do not name the board of {gpu}, which may be {listed(list(found), _LISTED)}"
    rates = [one for one in found.values() if one is not None]
    return rates[0] if all(one == rates[0] for one in rates) else BoardRates(reason=reason)


def _of_board(board: str) -> BoardRates | None:
    sheet = next((sheet for sheet in all_sheets() if board in sheet.product.names), None)
    if sheet is not None:
        return BoardRates(bytes_per_s=sheet.bytes_per_s, ops_per_s=sheet.ops_per_s)
    peak = peak_in_table(board)
    return BoardRates(bytes_per_s=peak.bytes_per_s, ops_per_s=peak.flops_per_s) if peak else None


def predict(
    work: CommonWork, rows: Places, places: tuple[int, int], rates: tuple[BoardRates, BoardRates]
) -> PairPrediction:
    """Predict the ratios time on the second GPU ÷ time on the first, of ``rows``.

    Args:
        work: The work.
        rows: Rows of it.
        places: Places of the two GPUs in it.
        rates: Their rates.
    """
    peaks = [_peaks(work.dtypes, one)[work.dtype[rows]] for one in rates]
    widths = [np.nan if one.bytes_per_s is None else one.bytes_per_s for one in rates]
    flops, moved = (amount[rows] for amount in work.amounts)
    arithmetic, memory = ([np.where(flops == 0, 0.0, flops / peak) for peak in peaks], [moved / one for one in widths])
    roofs = [np.where(a + m > 0, np.maximum(a, m), np.nan) for a, m in zip(arithmetic, memory, strict=True)]
    shares = [roof * 1e9 / np.exp(work.log_ns[rows, place]) for roof, place in zip(roofs, places, strict=True)]
    by_memory = [m >= a for a, m in zip(arithmetic, memory, strict=True)]
    limit = np.where(by_memory[0] & by_memory[1], MEMORY, np.where(by_memory[0] | by_memory[1], MIXED, COMPUTE))
    limit = np.where(np.fmax(*shares) < LEAST_SHARE, NEITHER, limit)
    impossible = np.fmax(*shares) > 1
    limit = np.where(impossible | np.isnan(roofs[0] + roofs[1]), UNKNOWN, limit)
    known = limit < NEITHER
    ratio = widths[0] / widths[1]
    return PairPrediction(
        memory=None if np.isnan(ratio) else float(ratio),
        compute=peaks[0] / peaks[1],
        limit=limit.astype(np.intp),
        log_predicted=np.where(known, np.log(roofs[1]) - np.log(roofs[0]), np.nan),
        share=shares[0],
        share_than=shares[1],
        impossible=int(impossible.sum()),
    )


def _peaks(dtypes: Sequence[str], rates: BoardRates) -> Floats:
    """Return the peak rate of each dtype, and NaN after them, for an unknown one."""
    known = [rates.ops_per_s.get(dtype) for dtype in dtypes]
    return np.array([*(np.nan if rate is None else rate for rate in known), np.nan])
