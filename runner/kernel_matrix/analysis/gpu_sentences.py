"""Sentences that answer how much faster one GPU is than another."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import polars as pl

from kernel_matrix.analysis.common_work import BASELINES, CANDIDATES, KINDS, REFERENCES
from kernel_matrix.analysis.gpu_pairs import LONG_NS, GpuPair
from kernel_matrix.analysis.gpu_predictions import COMPUTE, LIMITS, MEMORY
from kernel_matrix.analysis.sentences import listed

_SUBJECTS: Final = {REFERENCES: "The references", BASELINES: "The baselines (eager)"}
_LISTED: Final = 3


def describe_pair(pair: GpuPair, short: pl.DataFrame, *, weighted: bool) -> str:
    """Answer for one pair that has common work: the ratio, the prediction, and what falls short of it.

    Args:
        pair: The pair.
        short: What falls short, of this pair and others.
        weighted: Problems have weights.
    """
    return " ".join(_sentences(pair, short, weighted=weighted))


def _sentences(pair: GpuPair, short: pl.DataFrame, *, weighted: bool) -> Iterator[str]:
    one, other = pair.names
    whole = {row["kind"]: row for row in pair.means(np.zeros(pair.rows.size, np.intp)).iter_rows(named=True)}
    headline = next((kind for kind in (CANDIDATES, REFERENCES, BASELINES) if kind in whole), None)
    if headline is None:
        yield f"All problems that {one} and {other} have in common have the weight 0."
        return
    row = whole[headline]
    of = "" if headline == CANDIDATES else f" for {'the baselines' if headline == BASELINES else headline}"
    problems = "1 problem" if row["problems"] == 1 else f"{row['problems']:,} problems"
    by_weight = " (weighted)" if weighted else ""
    predicted = _predicted(pair, headline, row)
    yield f"{one} is {_ratio(row)} as fast as {other}{of} over {problems}{by_weight}; {predicted}."
    yield from _by_limit(pair, headline)
    yield from _by_size(pair, headline)
    yield from _short(pair, short, headline)
    for kind, subject in _SUBJECTS.items():
        if kind in whole and kind != headline:
            yield f"{subject}: {_ratio(whole[kind])}."


def _ratio(row: dict[str, Any]) -> str:
    """Write a ratio with its interval: ``1.31× (95 % interval 1.24 to 1.38)``."""
    if row["low"] is None:
        return f"{_figure(row['ratio'])}×"
    return f"{_figure(row['ratio'])}× (95 % interval {_figure(row['low'])} to {_figure(row['high'])})"


def _figure(value: float) -> str:
    if value < 0.1:
        return f"{value:.3g}"
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:,.0f}"


def _predicted(pair: GpuPair, headline: str, row: dict[str, Any]) -> str:
    """Say what the data sheets predict and where the ratio of ``row`` lies, or why they predict nothing."""
    reasons = [rates.reason for rates in pair.rates if rates.reason]
    if reasons:
        return f"no prediction of data sheets: {'; '.join(dict.fromkeys(reasons))}"
    mine = pair.kind == KINDS.index(headline)
    compute, dtypes = pair.prediction.compute[mine], pair.work.keys["dtype"].cast(pl.String)[pair.rows[mine]]
    parts = []
    if pair.prediction.memory is not None:
        parts.append(f"{_figure(pair.prediction.memory)}× for memory-bound work")
    known = np.unique(np.round(compute[~np.isnan(compute)], 6))
    if known.size:
        span = _figure(known[0]) if known.size == 1 else f"{_figure(known[0])} to {_figure(known[-1])}"
        by_dtype = "" if known.size == 1 else ", by dtype"
        parts.append(f"{span}× for compute-bound work{by_dtype}")
        if len(parts) == 2:
            parts[0] = parts[0].removesuffix(" work")
    elif dtypes.null_count() == dtypes.len():
        parts.append("nothing for compute-bound work, since the results do not name their dtype")
    else:
        parts.append(f"nothing for compute-bound work in {listed(dtypes.drop_nulls().unique().sort().to_list(), 3)}")
    where = _place(row, [pair.prediction.memory, known[0], known[-1]]) if known.size else ""
    return f"the data sheets predict {' and '.join(parts)}{where}"


def _place(row: dict[str, Any], predicted: list[float | None]) -> str:
    """Say where a ratio with its interval lies among predictions; nothing if the interval does not show it."""
    known = [one for one in predicted if one is not None]
    if len(known) < len(predicted) or row["low"] is None:
        return ""
    if row["high"] < min(known):
        return "; it is less than both"
    return "; it is more than both" if row["low"] > max(known) else ""


def _by_limit(pair: GpuPair, headline: str) -> Iterator[str]:
    """Say how the workloads whose limit is known compare with the prediction."""
    rows = pair.means(pair.prediction.limit).filter(pl.col("kind") == headline)
    parts = []
    for place in (MEMORY, COMPUTE):
        found = rows.filter((pl.col("slice") == place) & pl.col("reached").is_not_null())
        parts += [
            f"{LIMITS[place]}-bound {_ratio(row)}, {100 * row['reached']:.0f} % of the prediction"
            for row in found.iter_rows(named=True)
        ]
    if parts:
        yield f"Workloads whose limit is known: {'; '.join(parts)}."


def _by_size(pair: GpuPair, headline: str) -> Iterator[str]:
    """Say the ratio of long calls, if there are short ones too."""
    is_long = (pair.longer_ns >= LONG_NS).astype(np.intp)
    rows = pair.means(is_long).filter(pl.col("kind") == headline).sort("slice")
    if rows.height == 2:
        short, long = rows.iter_rows(named=True)
        yield f"Calls of 100 µs and longer: {_ratio(long)}; shorter ones: {_ratio(short)}."


def _short(pair: GpuPair, short: pl.DataFrame, headline: str) -> Iterator[str]:
    """Say how much falls short of the prediction, and the furthest."""
    one, other = pair.names
    mine = short.filter((pl.col("gpu") == one) & (pl.col("than") == other) & (pl.col("kind") == headline))
    if mine.is_empty():
        return
    row = mine.row(0, named=True)
    what = ", ".join(part for part in (row["dtype"], row["workload"]) if part)
    falls = "1 workload falls" if mine.height == 1 else f"{mine.height:,} workloads fall"
    furthest = ":" if mine.height == 1 else ", the furthest"
    yield (
        f"{falls} clearly short of the prediction{furthest} {_named(row)} ({what}) with {_figure(row['ratio'])}× "
        f"instead of {_figure(row['predicted'])}×."
    )


def _named(row: dict[str, Any]) -> str:
    """Name a workload's candidate, with its problem unless the name starts with it."""
    candidate, problem = row["candidate"], row["problem"]
    if candidate is None:
        return f"the baseline of {problem}"
    return str(candidate) if candidate.startswith(f"{problem}/") else f"{candidate} of {problem}"
