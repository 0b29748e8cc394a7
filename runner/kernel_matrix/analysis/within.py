"""Sums over blocks and samples within the sessions of a cell."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import polars as pl

from kernel_matrix.analysis.outcomes import aggregate
from kernel_matrix.analysis.tables import Tables
from kernel_matrix.analysis.timed_sessions import TimedSessions
from kernel_matrix.measure.timed import CANDIDATE
from kernel_matrix.model.enums import Implementation, Regime

WITHIN: Final = (
    "samples", "blocks", "block_squares", "block_degrees", "block_factor", "sample_squares",
    "sample_degrees", "inverse_blocks", "inverse_samples", "sessions", "call_ns",
)  # fmt: skip
"""Columns of :func:`within`; all may be added over cells."""

FARTHEST: Final = 3.0
"""How far from its session's median a sample counts at most, in standard deviations."""
_AT_ONCE: Final = 125_000
"""Records whose blocks are held in memory; larger groups are slower."""
_PASSES: Final = 8
"""Largest number of passes over the samples, for any number of records."""
_SIDES: Final = ("candidate", "baseline")
"""Measures; a side is encoded as its place here."""
_IS_COMPARED: Final = pl.col("contestant").is_in([CANDIDATE, Implementation.EAGER.value])


def within(tables: Tables, measured: TimedSessions) -> pl.DataFrame:
    """Sum blocks and samples within sessions, per ``cell`` and ``of`` (candidate or baseline).

    Samples are those of which the session's time is the median: batches where it has any that count, else the kept,
    cold single calls of the candidate and of eager. Since the median depends little on how far the farthest samples are
    from it, one that is more than :data:`FARTHEST` standard deviations away counts as if it were that far; otherwise a
    few calls that were delayed would explain all that sessions differ by. Samples are read in ranges of records, and
    reduced to blocks and then to sessions before they are joined with cells, so that they are never all in memory.
    """
    batches, calls = _counted_batches(tables.batches), _counted_calls(tables.samples)
    numbers = _Numbers.of([tables.batches, tables.samples], measured.values)
    limits = numbers.limits(measured.values).lazy()
    in_batches, in_calls = (
        pl.concat([numbers.sums(one, limits, part) for part in numbers.ranges()]) for one in (batches, calls)
    )
    in_sessions = pl.concat([in_batches, in_calls.join(in_batches, on="visit", how="anti")])
    visits = measured.values.select("cell", numbers.visit())
    side = pl.col("visit") % len(_SIDES)
    rows = in_sessions.lazy().with_columns(
        visit=pl.col("visit") // len(_SIDES),
        of=pl.when(side == 0).then(pl.lit(_SIDES[0])).otherwise(pl.lit(_SIDES[1])),
        block_degrees=pl.col("blocks") - 1,
        sample_degrees=pl.col("samples") - pl.col("blocks"),
        inverse_blocks=1 / pl.col("blocks"),
        inverse_samples=1 / pl.col("samples"),
        sessions=pl.lit(1.0),
        call_ns="lasted",
    )
    of_cells = rows.join(visits.lazy(), on="visit").select("cell", "of", *WITHIN)
    return aggregate(of_cells, ("cell", "of"), pl.col(WITHIN).sum()).collect()


def _counted_batches(batches: pl.LazyFrame) -> pl.LazyFrame:
    """Keep batches of which a session's time is the median."""
    return batches.filter(_IS_COMPARED & (pl.col("call_ns") > 0)).with_columns(time_ns="call_ns")


def _counted_calls(samples: pl.LazyFrame) -> pl.LazyFrame:
    """Keep cold single calls that were not discarded."""
    is_cold = (pl.col("regime") == Regime.COLD.value) & pl.col("discarded").is_null()
    return samples.filter(_IS_COMPARED & is_cold & (pl.col("device_ns") > 0)).with_columns(time_ns="device_ns")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Numbers:
    """Encoding of a session's workload, its side and a block as one number: grouping by one integer is fastest."""

    records: int
    """Highest record + 1; so are the following counts."""
    sessions: int
    blocks: int
    workloads: pl.Enum

    @property
    def kind(self) -> pl.DataType:
        """An integer type that holds the highest number."""
        total = self.records * self.sessions * len(self.workloads.categories) * len(_SIDES) * self.blocks
        return pl.UInt64() if total < 2**64 else pl.Int128()

    @classmethod
    def of(cls, timed: Sequence[pl.LazyFrame], values: pl.DataFrame) -> _Numbers:
        highest = max(
            one.select(pl.col("block").max().fill_null(-1)).collect(engine="streaming").item() for one in timed
        )
        records, sessions = values.select(pl.col("record").max(), pl.col("session").max()).row(0)
        return cls(
            records=records + 1,
            sessions=(sessions or 0) + 1,
            blocks=2 + highest,
            workloads=pl.Enum(values["workload"].unique().drop_nulls().sort()),
        )

    def ranges(self) -> Iterator[range]:
        """Yield ranges of records to be summed one after the other."""
        step = max(_AT_ONCE, -(-self.records // _PASSES))
        for first in range(0, self.records, step):
            yield range(first, min(first + step, self.records))

    def limits(self, values: pl.DataFrame) -> pl.DataFrame:
        """Compute the logarithms to which samples are limited, ``least`` and ``most``, per ``visit`` (with its side).

        Both are :data:`FARTHEST` standard deviations from the session's median. The standard deviation is the median of
        those of the attempt's sessions.
        """
        spreads = [f"spread_{side}" for side in _SIDES]
        numbered = values.lazy().with_columns(self.visit(), attempt=self._place(pl.lit(0)))
        usual = numbered.group_by("attempt").agg(pl.col(spreads).median())
        sessions = numbered.drop(spreads).join(usual, on="attempt")
        sides = []
        for number, side in enumerate(_SIDES):
            # A coarse clock may give most samples the same time; their quartiles say nothing of the others.
            spread, middle = pl.col(f"spread_{side}"), pl.col(f"log_{side}")
            reach = pl.when(spread > 0).then(FARTHEST * spread).otherwise(math.inf)
            visit = pl.col("visit") * len(_SIDES) + number
            sides.append(sessions.select(visit, least=middle - reach, most=middle + reach).drop_nulls())
        return pl.concat(sides).collect()

    def sums(self, samples: pl.LazyFrame, limits: pl.LazyFrame, records: range) -> pl.DataFrame:
        """Sum blocks and samples of ``records``, limited to ``limits``, per ``visit`` (including its side)."""
        known = pl.col("session").is_between(0, self.sessions - 1) & self._workload().is_not_null()
        visits_per_record = self.sessions * len(self.workloads.categories) * len(_SIDES)
        first, last = records.start, records.stop - 1
        own_limits = limits.filter((pl.col("visit") // visits_per_record).is_between(first, last))
        side = (pl.col("contestant") != CANDIDATE).cast(self.kind)
        block = (pl.col("block").fill_null(-1).cast(pl.Int64) + 1).cast(self.kind)
        own = samples.filter(pl.col("record").is_between(first, last) & known)
        numbered = own.select(
            "block_started_ns",
            "block_ended_ns",
            visit=self.visit() * len(_SIDES) + side,
            in_visit=block,
            value=pl.col("time_ns").cast(pl.Float64).log(),
        )
        value = pl.col("value")
        limited = numbered.join(own_limits, on="visit").with_columns(
            value.clip("least", "most"), place=pl.col("visit") * self.blocks + pl.col("in_visit")
        )
        blocks = limited.group_by("place").agg(
            n=pl.len().cast(pl.Float64),
            mean=value.mean(),
            var=value.var(),
            lasted=(pl.col("block_ended_ns") - pl.col("block_started_ns")).max().cast(pl.Float64),
        )
        n, mean = pl.col("n"), pl.col("mean")
        found = blocks.group_by((pl.col("place") // self.blocks).alias("visit")).agg(
            samples=n.sum(),
            blocks=pl.len().cast(pl.Float64),
            block_squares=((n * mean**2).sum() - (n * mean).sum() ** 2 / n.sum()).clip(lower_bound=0),
            block_factor=n.sum() - (n**2).sum() / n.sum(),
            sample_squares=((n - 1) * pl.col("var")).sum(),
            lasted=pl.col("lasted").sum(),
        )
        return found.collect(engine="streaming")

    def visit(self) -> pl.Expr:
        """Encode a session's workload as one number among those of all records."""
        return self._place(pl.col("session")).alias("visit")

    def _place(self, session: pl.Expr) -> pl.Expr:
        in_record = pl.col("record").cast(self.kind) * self.sessions + session.cast(self.kind)
        workload = self._workload().to_physical().cast(self.kind)
        return in_record * len(self.workloads.categories) + workload

    def _workload(self) -> pl.Expr:
        return pl.col("workload").cast(self.workloads, strict=False)
