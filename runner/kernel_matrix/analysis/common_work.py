"""Times of the same work on several GPUs, like with like.

The same work is a workload of a problem in a dtype, done by the same content of a candidate with the same toolchain,
that passed on each GPU. Toolchains are joined if each GPU has only one. Candidates, references (a problem's reference
run as a candidate), controls (candidates that are declared to fail) and baselines are kinds of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import polars as pl

from kernel_matrix.analysis.differences import DEFAULT_DEGREES, default_deviation
from kernel_matrix.analysis.standings import FACTS, Floats, FoldedTable, Places, Standing, Truths, fold

CANDIDATES: Final = "candidates"
REFERENCES: Final = "references"
CONTROLS: Final = "controls"
BASELINES: Final = "baselines"
KINDS: Final = (CANDIDATES, REFERENCES, BASELINES, CONTROLS)
"""Kinds of work, in the order in which they are reported; those of outcomes, in the plural, and baselines."""

_WORK: Final = ("kind", "problem", "ranks", "dtype", "workload", "candidate")
_CALL: Final = ("problem", "ranks", "dtype", "workload")
_CONTENT: Final = ("problem_sha256", "candidate_sha256")
_OF_PROBLEM: Final = ("category", "level", "source")
_DESCRIBING: Final = tuple(name for name in FACTS if name not in _CONTENT)
_TIMES: Final = ("log", "sessions", "error", "degrees")
_EXACT_BITS: Final = 11
"""Low bits that a 64-bit hash gives up to be exact in a float."""


@dataclass(frozen=True, kw_only=True)
class CommonWork:
    """Work × GPUs."""

    keys: pl.DataFrame
    """One row per workload of a cell: what names it, what describes it, ``flops`` and ``bytes``."""
    gpus: tuple[str, ...]
    log_ns: Floats
    """Logarithms of times; NaN where it did not pass or was not timed."""
    variance: Floats
    """Variance of ``log_ns`` that sessions and runs cause; an assumed one where the tables do not show it."""
    degrees: Floats
    """Degrees of freedom of ``variance``."""
    content: Floats
    """Digests of what was run; NaN where there is no result."""
    failed: Truths
    """It failed by its own fault."""

    @cached_property
    def cell(self) -> Places:
        """Number of the cell of each row: all that names it but the workload."""
        return numbered(self.keys, [name for name in self.keys.columns[: self._named] if name != "workload"])

    @cached_property
    def problem(self) -> Places:
        """Number of the problem of each row."""
        return numbered(self.keys, ["problem"])

    @cached_property
    def kind(self) -> Places:
        """Place in :data:`KINDS` of each row."""
        return placed(self.keys["kind"], KINDS)

    @cached_property
    def dtypes(self) -> tuple[str, ...]:
        """Names of the dtypes."""
        return tuple(self.keys["dtype"].cast(pl.String).drop_nulls().unique().sort().to_list())

    @cached_property
    def dtype(self) -> Places:
        """Place in ``dtypes`` of each row; −1 where it is unknown."""
        return placed(self.keys["dtype"], self.dtypes)

    @cached_property
    def amounts(self) -> tuple[Floats, Floats]:
        """Floating-point operations and bytes of each row; NaN where they are unknown."""
        flops, moved = (self.keys[name].fill_null(np.nan).to_numpy() for name in ("flops", "bytes"))
        return flops, moved

    @property
    def _named(self) -> int:
        return len(_WORK) + ("toolchain" in self.keys.columns)

    def same_content(self, one: int, other: int) -> Truths:
        """Flag rows whose problem and candidate have the same content on two GPUs."""
        same: Truths = self.content[:, one] == self.content[:, other]
        return same


def numbered(frame: pl.DataFrame, by: Sequence[str]) -> Places:
    """Return the number of each row's combination of values of ``by``, in their order."""
    known = frame.select(by).unique().sort(by).with_row_index("_number")
    rows = frame.select(by).join(known, on=list(by), how="left", nulls_equal=True, maintain_order="left")
    numbers: Places = rows["_number"].to_numpy().astype(np.intp)
    return numbers


def placed(column: pl.Series, values: Sequence[str]) -> Places:
    """Return the place of each value of ``column`` in ``values``; −1 where it is not among them."""
    places = {value: place for place, value in enumerate(values)}
    if not places:
        return np.full(len(column), -1, np.intp)
    found = column.cast(pl.String).replace_strict(places, default=-1, return_dtype=pl.Int64)
    numbers: Places = found.fill_null(-1).to_numpy().astype(np.intp)
    return numbers


def common_work(table: pl.DataFrame, cells: pl.LazyFrame, gpus: Sequence[str], *, toolchains_apart: bool) -> CommonWork:
    """Fold standings to work × ``gpus``.

    Args:
        table: Standings.
        cells: The table ``cells``, for the amount of work.
        gpus: Names of GPUs, in order.
        toolchains_apart: Times of two toolchains are different work.
    """
    by = [*_WORK, *(["toolchain"] if toolchains_apart else [])]
    rows = _rows(table)
    wide = fold(rows, "gpu", gpus, by)
    log_ns, sessions, error, degrees = (wide.of(wide.table[name]) for name in _TIMES)
    unknown = np.isnan(error)
    content = wide.table.select(pl.struct(_CONTENT).hash() // 2**_EXACT_BITS).to_series()
    return CommonWork(
        keys=_described(wide, by, cells),
        gpus=tuple(gpus),
        log_ns=log_ns,
        variance=np.where(unknown, default_deviation(np.exp(log_ns)) ** 2 / np.maximum(sessions, 1), error**2),
        degrees=np.where(unknown, DEFAULT_DEGREES, degrees),
        content=wide.of(content),
        failed=wide.stands(Standing.FAILED),
    )


def _rows(table: pl.DataFrame) -> pl.DataFrame:
    """Return one row per kind of work and GPU: what names and describes it, and its time."""
    columns = [*_WORK, "toolchain", "gpu", *_CONTENT, *_DESCRIBING, "standing", *_TIMES]
    of_candidates = table.with_columns(
        kind=pl.col("candidate_kind").cast(pl.String) + "s",
        log=pl.col("candidate_ns").log(),
        sessions=pl.col("sessions").cast(pl.Int64),
        error="log_error",
        degrees="log_degrees",
    ).select(columns)
    weight = pl.col("baseline_sessions")
    of_baselines = (
        table.filter(pl.col("baseline_ns").is_not_null())
        .group_by("problem", "ranks", "dtype", "workload", "toolchain", "gpu", "problem_sha256", maintain_order=True)
        .agg(
            *(pl.col(name).first() for name in _OF_PROBLEM),
            log=(pl.col("baseline_ns").log() * weight).sum() / weight.sum(),
            sessions=weight.sum().cast(pl.Int64),
            error=((pl.col("baseline_error") * weight) ** 2).sum().sqrt() / weight.sum(),
            degrees=pl.col("baseline_degrees").sum(),
            known=pl.col("baseline_error").is_not_null().all(),
            started=pl.len(),
        )
        # Of two contents of a problem on one GPU, the one with more candidates counts.
        .sort("started", descending=True, maintain_order=True)
        .unique(["problem", "ranks", "dtype", "workload", "toolchain", "gpu"], keep="first", maintain_order=True)
        .with_columns(
            *(pl.lit(None, of_candidates.schema[name]).alias(name) for name in columns if name not in _KNOWN),
            kind=pl.lit(BASELINES),
            standing=pl.lit(Standing.PASSED.value, of_candidates.schema["standing"]),
            error=pl.when("known").then("error"),
            degrees=pl.when("known").then("degrees"),
        )
        .select(columns)
    )
    return pl.concat([of_candidates, of_baselines])


_KNOWN: Final = (
    "kind", "problem", "ranks", "dtype", "workload", "toolchain", "gpu", "problem_sha256",
    *_OF_PROBLEM, "standing", *_TIMES,
)  # fmt: skip
"""Columns that baselines have."""


def _described(wide: FoldedTable, by: Sequence[str], cells: pl.LazyFrame) -> pl.DataFrame:
    """Add to each key what describes it, and the amount of its work."""
    numbers = pl.Series("_row", wide.row)
    described = wide.table.select(pl.col(name) for name in _DESCRIBING).with_columns(numbers)
    facts = described.unique("_row", keep="first").sort("_row").drop("_row")
    keys = wide.keys.select(by).hstack(facts)
    return keys.join(_amounts(cells), on=_CALL, how="left", nulls_equal=True, maintain_order="left")


def _amounts(cells: pl.LazyFrame) -> pl.DataFrame:
    """Return the floating-point operations and bytes of a call by problem, dtype and workload.

    Imported results have rates instead. The operations of quantised arithmetic are left out, since they run at rates of
    narrower numbers than the dtype; they are the ones that have no share of a known peak.
    """
    seconds = pl.col("candidate_median_ns") / 1e9
    quantised = (
        pl.col("flops_share_of_peak").is_null()
        & (pl.col("peak_flops_per_s") > 0)
        & (pl.col("flops") > 0)
        & (seconds > 0)
    )
    flops = pl.coalesce("flops", pl.col("flops_per_s") * seconds)
    found = cells.group_by(_CALL).agg(
        pl.when(~quantised.any()).then(flops.median()).alias("flops"),
        pl.coalesce("bytes", pl.col("bytes_per_s") * seconds).median().alias("bytes"),
    )
    return found.collect(engine="streaming")
