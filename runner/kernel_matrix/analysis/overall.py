"""The answer of a comparison as a whole: how much faster or slower, in the mean over problems."""

from __future__ import annotations

from typing import Final

import polars as pl
from scipy import special  # type: ignore[import-untyped]

from kernel_matrix.analysis.comparison import Change, OverallChange
from kernel_matrix.measure.intervals import log_interval

_MOVED: Final = (Change.REGRESSION, Change.ACCEPTED, Change.IMPROVEMENT)


def overall_changes(rows: pl.DataFrame) -> tuple[OverallChange, ...]:
    """Summarise rows with the columns ``ROWS``: all together, then by GPU and by category where there are several."""
    timed = rows.filter(pl.col("p").is_not_null())
    if timed.is_empty():
        return ()
    found = [_summarise("all", "all", timed)]
    for by in ("gpu", "category"):
        slices = timed.partition_by(by, as_dict=True)
        if len(slices) > 1:
            found += [_summarise(by, str(name or "unknown"), rows) for (name,), rows in sorted(slices.items(), key=str)]
    return tuple(found)


def _summarise(by: str, name: str, rows: pl.DataFrame) -> OverallChange:
    # Workloads of a cell are averaged first, then the cells of a problem: a problem with many workloads counts once.
    log = rows.with_columns(pl.col("ratio").log().alias("log"))
    cell = ("problem", "ranks", "candidate", "dtype", "gpu", "toolchain")
    cells = log.group_by(cell, maintain_order=True).agg(pl.col("log").mean())
    ratios = cells.group_by("problem", maintain_order=True).agg(pl.col("log").mean().exp())["log"].to_list()
    mean = log_interval(ratios)
    several = len(ratios) > 1
    higher, lower = int((rows["ratio"] > 1).sum()), int((rows["ratio"] < 1).sum())
    return OverallChange(
        by=by,
        name=name,
        rows=rows.height,
        problems=len(ratios),
        ratio=mean.estimate,
        low=mean.low if several else None,
        high=mean.high if several else None,
        higher=higher,
        lower=lower,
        sign_p=sign_test(higher, lower),
        moved=rows.filter(pl.col("change").is_in([change.value for change in _MOVED])).height,
    )


def sign_test(higher: int, lower: int) -> float:
    """Compute the two-sided probability of a split this uneven if each of the two is as likely."""
    count = higher + lower
    return min(1.0, 2 * float(special.bdtr(min(higher, lower), count, 0.5))) if count else 1.0
