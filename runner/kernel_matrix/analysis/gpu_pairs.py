"""Ratios of the times of two GPUs over their common work, and what falls short of the data sheets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import polars as pl
from scipy import special  # type: ignore[import-untyped]

from kernel_matrix.analysis.common_work import BASELINES, CANDIDATES, KINDS, REFERENCES, CommonWork, numbered, placed
from kernel_matrix.analysis.comparison import FALSE_DISCOVERIES
from kernel_matrix.analysis.differences import benjamini_hochberg
from kernel_matrix.analysis.gpu_predictions import LIMITS, UNKNOWN, BoardRates, PairPrediction, predict
from kernel_matrix.analysis.mean_ratios import MEANS, LogRatios, mean_ratios
from kernel_matrix.analysis.standings import Floats, Places, Truths
from kernel_matrix.measure.intervals import LEVEL, t_quantile

LONG_NS: Final = 100_000
"""Calls that take as long on the slower GPU are told apart in words: shorter ones may be limited by their launch."""
_SURE_NS: Final = 1_000_000
"""Calls that take as long are limited by the hardware, not by launches, even if they launch a dozen kernels."""
_EDGES_NS: Final = (10_000, LONG_NS, _SURE_NS)
SIZES: Final = ("below 10 µs", "10 to 100 µs", "100 µs to 1 ms", "1 ms and longer")
"""Classes of size: time of a call on the slower GPU of a pair."""
HEADLINES: Final = (CANDIDATES, REFERENCES, BASELINES)
"""Kinds of work, the first of which that a pair has in common is its headline."""
_PREDICTED: Final = ("reached", "reached_low", "reached_high", "predicted_problems")
RATIOS: Final[dict[str, pl.DataType]] = {
    **{name: dtype for name, dtype in MEANS.items() if name != "slice"},
    "memory": pl.Float64(),
    "compute": pl.Float64(),
    **dict.fromkeys(_PREDICTED[:-1], pl.Float64()),
    "predicted_problems": pl.Int64(),
}
SHORTFALLS: Final[dict[str, pl.DataType]] = {
    **dict.fromkeys(("gpu", "than", "kind", "problem", "dtype", "workload", "candidate", "limit"), pl.String()),
    **dict.fromkeys(
        ("ratio", "low", "high", "predicted", "of_predicted", "gpu_us", "than_us", "gpu_share", "than_share"),
        pl.Float64(),
    ),
}


@dataclass(frozen=True, kw_only=True)
class GpuPair:
    """The common work of two GPUs."""

    work: CommonWork
    places: tuple[int, int]
    """Places of the GPUs in ``work``: the one that is spoken of, and the one that it is compared with."""
    rates: tuple[BoardRates, BoardRates]
    weight: Floats
    """Weight of each row of ``work``."""

    @property
    def names(self) -> tuple[str, str]:
        """Names of the two GPUs."""
        return self.work.gpus[self.places[0]], self.work.gpus[self.places[1]]

    @cached_property
    def _timed(self) -> Truths:
        one, other = self.places
        timed: Truths = ~np.isnan(self.work.log_ns[:, one]) & ~np.isnan(self.work.log_ns[:, other])
        return timed

    @cached_property
    def rows(self) -> Places:
        """Rows of ``work`` that were timed on both GPUs with the same content."""
        return np.flatnonzero(self._timed & self.work.same_content(*self.places))

    @property
    def other_content(self) -> int:
        """Number of workloads that were timed on both GPUs, with different content."""
        return int(self._timed.sum()) - self.rows.size

    @property
    def passed_once(self) -> int:
        """Number of workloads that passed on one of the GPUs and failed on the other by their own fault."""
        failed, log_ns = self.work.failed, self.work.log_ns
        return sum(int((failed[:, a] & ~np.isnan(log_ns[:, b])).sum()) for a, b in (self.places, self.places[::-1]))

    @cached_property
    def kind(self) -> Places:
        """Place in :data:`KINDS` of each row."""
        return self.work.kind[self.rows]

    @cached_property
    def headline(self) -> str | None:
        """The first of :data:`HEADLINES` that there is; None without common work."""
        number = dict(zip(KINDS, np.bincount(self.kind, minlength=len(KINDS)), strict=True))
        return next((kind for kind in HEADLINES if number[kind]), None)

    @cached_property
    def ratios(self) -> LogRatios:
        """Time on the second GPU ÷ time on the first."""
        one, other = self.places
        return LogRatios(
            log=self.work.log_ns[self.rows, other] - self.work.log_ns[self.rows, one],
            variance=self.work.variance[self.rows, one] + self.work.variance[self.rows, other],
            cell=self.work.cell[self.rows],
            problem=self.work.problem[self.rows],
            weight=self.weight[self.rows],
        )

    @cached_property
    def prediction(self) -> PairPrediction:
        """Predictions of the data sheets for each row."""
        return predict(self.work, self.rows, self.places, self.rates)

    @cached_property
    def longer_ns(self) -> Floats:
        """Time of each row on the slower GPU."""
        one, other = (self.work.log_ns[self.rows, place] for place in self.places)
        longer: Floats = np.exp(np.maximum(one, other))
        return longer

    def means(self, slices: Places) -> pl.DataFrame:
        """Compute the columns :data:`RATIOS` and ``slice`` for each slice and kind of work; see :func:`mean_ratios`.

        Args:
            slices: Number of the slice of each row; those below 0 are in none.
        """
        codes = np.where(slices >= 0, slices * len(KINDS) + self.kind, -1)
        found = mean_ratios(self.ratios, codes)
        known = np.flatnonzero(~np.isnan(self.prediction.log_predicted))
        log = self.ratios.log - self.prediction.log_predicted
        against = mean_ratios(
            LogRatios(
                log=log,
                variance=self.ratios.variance,
                cell=self.ratios.cell,
                problem=self.ratios.problem,
                weight=self.ratios.weight,
            )[known],
            codes[known],
        )
        predicted = against.lazy().select(
            "slice", *(pl.col(old).alias(new) for old, new in zip(_MEAN, _PREDICTED, strict=True))
        )
        kinds = pl.Series(KINDS, dtype=pl.String).gather(found["slice"] % len(KINDS))
        joined = found.lazy().with_columns(kinds.alias("kind"))
        for table in (predicted, self._rates(codes)):
            joined = joined.join(table, on="slice", how="left", maintain_order="left")
        return joined.select(
            pl.col("slice") // len(KINDS), "kind", *(pl.col(name).cast(dtype) for name, dtype in RATIOS.items())
        ).collect()

    def _rates(self, codes: Places) -> pl.LazyFrame:
        """Return the ratios of rates by slice; of peak rates only where they are the same for all of its rows."""
        rows = pl.LazyFrame({"slice": codes.astype(np.int64), "compute": self.prediction.compute})
        same = pl.col("compute").min() >= pl.col("compute").max() * (1 - 1e-9)
        found = rows.group_by("slice").agg(pl.when(same).then(pl.col("compute").max()).fill_nan(None))
        return found.with_columns(memory=pl.lit(self.prediction.memory, pl.Float64))

    def slices(self) -> Iterator[tuple[str, Sequence[str], Places]]:
        """Yield each kind of slice with its values, and the place of the value of each row; −1 for none."""
        for name in ("category", "dtype", "language"):
            column = self.work.keys[name].cast(pl.String)
            values = column.drop_nulls().unique().sort().to_list()
            yield name, values, placed(column, values)[self.rows]
        yield "size", SIZES, np.searchsorted(_EDGES_NS, self.longer_ns, side="right").astype(np.intp)
        yield "limit", LIMITS, self.prediction.limit

    def shortfalls(self) -> pl.DataFrame:
        """Return the rows whose ratio is shown to be less than predicted, the furthest first; see :data:`SHORTFALLS`.

        Where the operations and bytes of a call are unknown, the lower of both predictions counts, for calls of 1 ms
        and longer on the slower GPU.
        """
        found = self.prediction
        lower = np.fmin(np.nan if found.memory is None else found.memory, found.compute)
        both = ~np.isnan(found.compute) & (found.memory is not None)
        usable = (found.limit == UNKNOWN) & both & (self.longer_ns >= _SURE_NS) & np.isnan(found.share)
        predicted = np.where(usable, np.log(lower), found.log_predicted)
        known = np.flatnonzero(~np.isnan(predicted))
        if not known.size:
            return pl.DataFrame(schema=SHORTFALLS)
        log, error = self.ratios.log[known], np.sqrt(self.ratios.variance[known])
        degrees = self._degrees(known)
        q = benjamini_hochberg(special.stdtr(degrees, (log - predicted[known]) / error))
        reach = t_quantile(degrees, LEVEL) * error
        short = (q < FALSE_DISCOVERIES) & (log + reach < predicted[known])
        rows = known[short]
        return self._shortfall_rows(rows, predicted[rows], reach[short])

    def _degrees(self, rows: Places) -> Floats:
        """Approximate the degrees of freedom of the differences (Satterthwaite 1946)."""
        parts = [
            (self.work.variance[self.rows[rows], place], self.work.degrees[self.rows[rows], place])
            for place in self.places
        ]
        total = sum(variance for variance, _ in parts)
        degrees: Floats = np.asarray(total**2 / sum(variance**2 / degrees for variance, degrees in parts))
        return degrees

    def _shortfall_rows(self, rows: Places, predicted: Floats, reach: Floats) -> pl.DataFrame:
        log, (one, other) = self.ratios.log[rows], self.places
        where = self.rows[rows]
        limits = pl.Series(LIMITS, dtype=pl.String)
        numbers = {
            "ratio": np.exp(log),
            "low": np.exp(log - reach),
            "high": np.exp(log + reach),
            "predicted": np.exp(predicted),
            "of_predicted": np.exp(log - predicted),
            "gpu_us": np.exp(self.work.log_ns[where, one]) / 1e3,
            "than_us": np.exp(self.work.log_ns[where, other]) / 1e3,
            "gpu_share": self.prediction.share[rows],
            "than_share": self.prediction.share_than[rows],
        }
        keys = self.work.keys[where]
        return (
            keys.select("kind", "problem", "dtype", "workload", "candidate")
            .with_columns(
                gpu=pl.lit(self.names[0]),
                than=pl.lit(self.names[1]),
                limit=limits.gather(self.prediction.limit[rows]),
                **{name: pl.Series(values, dtype=pl.Float64).fill_nan(None) for name, values in numbers.items()},
            )
            .select(pl.col(name).cast(dtype) for name, dtype in SHORTFALLS.items())
            .sort("of_predicted", "problem", "dtype", "workload", "candidate")
        )


_MEAN: Final = ("ratio", "low", "high", "problems")


def group_slices(pair: GpuPair, by: Sequence[str]) -> tuple[pl.DataFrame, Places]:
    """Return the combinations of values of ``by``, numbered, and the number of each row of the pair."""
    if not by:
        return pl.DataFrame({"slice": [0]}, schema={"slice": pl.Int64}), np.zeros(pair.rows.size, np.intp)
    keys = pair.work.keys
    number = numbered(keys, by)
    labels = keys.select(by).with_columns(slice=pl.Series(number, dtype=pl.Int64)).unique("slice", keep="first")
    return labels, number[pair.rows]
