"""Sums over blocks and samples within the sessions of a cell."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import polars as pl

from kernel_matrix.analysis.outcomes import aggregate
from kernel_matrix.analysis.timed_sessions import TimedSessions
from kernel_matrix.measure.timed import CANDIDATE
from kernel_matrix.model.enums import Implementation, Regime

WITHIN: Final = (
    "samples", "blocks", "block_squares", "block_degrees", "block_factor", "sample_squares",
    "sample_degrees", "inverse_blocks", "inverse_samples", "sessions", "call_ns",
)  # fmt: skip
"""Columns of :func:`within`; all may be added over cells."""

_AT_ONCE: Final = 125_000
"""Records whose blocks are held in memory; larger groups are slower."""
_PASSES: Final = 8
"""Largest number of passes over the samples, for any number of records."""
_SIDES: Final = ("candidate", "baseline")
"""Measures; a side is encoded as its place here."""


def within(samples: pl.LazyFrame, measured: TimedSessions) -> pl.DataFrame:
    """Sum blocks and samples within sessions, per ``cell`` and ``of`` (candidate or baseline).

    Only kept, cold samples of the candidate and of eager count. They are read in ranges of records, and reduced to
    blocks and then to sessions before any join, so that they are never all in memory.
    """
    numbers = _Numbers.of(samples, measured.values)
    in_sessions = pl.concat([numbers.sums(part) for part in numbers.ranges(_counted(samples))])
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


def _counted(samples: pl.LazyFrame) -> pl.LazyFrame:
    """Keep cold samples of the candidate and of eager that were not discarded."""
    return samples.filter(
        pl.col("contestant").is_in([CANDIDATE, Implementation.EAGER.value])
        & (pl.col("regime") == Regime.COLD.value)
        & pl.col("discarded").is_null()
        & (pl.col("device_ns") > 0)
    )


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
    def of(cls, samples: pl.LazyFrame, values: pl.DataFrame) -> _Numbers:
        highest = samples.select(pl.col("block").max()).collect(engine="streaming").item()
        records, sessions = values.select(pl.col("record").max(), pl.col("session").max()).row(0)
        return cls(
            records=records + 1,
            sessions=(sessions or 0) + 1,
            blocks=2 + (-1 if highest is None else highest),
            workloads=pl.Enum(values["workload"].unique().drop_nulls().sort()),
        )

    def ranges(self, samples: pl.LazyFrame) -> Iterator[pl.LazyFrame]:
        """Yield the samples of the encoded sessions by ranges of records."""
        known = pl.col("session").is_between(0, self.sessions - 1) & self._workload().is_not_null()
        step = max(_AT_ONCE, -(-self.records // _PASSES))
        for first in range(0, self.records, step):
            last = min(first + step, self.records) - 1
            yield samples.filter(pl.col("record").is_between(first, last) & known)

    def sums(self, samples: pl.LazyFrame) -> pl.DataFrame:
        """Sum blocks and samples per ``visit`` (including its side)."""
        value = pl.col("device_ns").cast(pl.Float64).log()
        side = (pl.col("contestant") != CANDIDATE).cast(self.kind)
        block = (pl.col("block").fill_null(-1).cast(pl.Int64) + 1).cast(self.kind)
        place = (self.visit() * len(_SIDES) + side) * self.blocks + block
        blocks = samples.group_by(place.alias("place")).agg(
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
        session = pl.col("record").cast(self.kind) * self.sessions + pl.col("session").cast(self.kind)
        workload = self._workload().to_physical().cast(self.kind)
        return (session * len(self.workloads.categories) + workload).alias("visit")

    def _workload(self) -> pl.Expr:
        return pl.col("workload").cast(self.workloads, strict=False)
