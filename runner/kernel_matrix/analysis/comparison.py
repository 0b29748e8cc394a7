"""What is compared, by which rules, and what came of it: the nouns of :mod:`kernel_matrix.analysis.compare`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

import polars as pl

from kernel_matrix.measure.verdict import MARGIN

EQUIVALENCE: Final = 0.02
"""Two sides are called equivalent when their difference is shown to be within this share."""
FALSE_DISCOVERIES: Final = 0.01
"""Expected share of false alarms among what is called a difference (Benjamini and Hochberg's q)."""
ENVIRONMENT_SHARE: Final = 0.30
"""More of the timed cells than this moving in one direction is an event of the environment."""
ENVIRONMENT_CELLS: Final = 3
"""And so many at least: one cell of two says nothing about the environment."""


class ComparisonAxis(str, Enum):
    """What base and new differ in."""

    RESULTS = "results"
    """Two sets of results, each in its own folder."""
    GPU = "gpu"
    """Two GPUs of one set, by the matrix's name."""
    TOOLCHAIN = "toolchain"
    """Two toolchains of one set."""
    DTYPE = "dtype"
    """Two dtypes of one set."""
    DRIVER = "driver"
    """Two driver versions of one set."""
    NIGHT = "night"
    """Two dates, in UTC, on which runs of one set started."""


class ComparedQuantity(str, Enum):
    """The quantity that is compared."""

    TIME = "time"
    """The candidate's time, nanoseconds; more is worse."""
    SPEEDUP = "speedup"
    """Baseline ÷ candidate, both of one session; less is worse. Clocks act on both, and cancel."""
    CYCLES = "cycles"
    """The candidate's time × the SM clock it ran at; more is worse. Null where the clock is not known."""

    @property
    def sign(self) -> int:
        """1 where more is worse, -1 where less is."""
        return -1 if self is ComparedQuantity.SPEEDUP else 1


class Change(str, Enum):
    """What a comparison says about one workload of one cell; in the order in which a reader wants to see them."""

    BROKE = "broke"
    """Passed in base, fails in new by the candidate's own fault."""
    REGRESSION = "regression"
    """Worse by more than the margin and more than chance, in cycles too where the clocks are known."""
    ACCEPTED = "accepted"
    """A regression that somebody accepted, with a reason and a date."""
    MISSING = "missing"
    """In base, and not in new."""
    INCONCLUSIVE = "inconclusive"
    """Neither a difference nor equivalence is shown, or a side says nothing; the reason is told."""
    BOTH_FAILED = "both_failed"
    """Fails on both sides by the candidate's own fault."""
    FIXED = "fixed"
    """Failed in base, passes in new."""
    IMPROVEMENT = "improvement"
    """Better by more than the margin and more than chance, in cycles too where the clocks are known."""
    NEW = "new"
    """In new, and not in base."""
    EQUIVALENT = "equivalent"
    """Shown to differ by less than the margin of equivalence."""


FLAGGED: Final = (Change.BROKE, Change.REGRESSION)
"""What a build fails for, and what ``--confirm`` runs again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonRules:
    """How differences are told from noise."""

    of: ComparedQuantity = ComparedQuantity.TIME
    margin: float = MARGIN
    """A difference counts from this share on. At 0.3 % between sessions and five of them, 2 % is then found."""
    equivalence: float = EQUIVALENCE
    q: float = FALSE_DISCOVERIES
    floor: float | None = None
    """What identical code was seen to differ by (A/A); neither margin is taken smaller. Null: look in the results."""
    floor_pairs: int = 0
    """Pairs of identical code in the results that the floor was told from; 0 where it was given."""

    @property
    def least(self) -> float:
        """The margin of a difference, with the floor."""
        return max(self.margin, self.floor or 0.0)

    @property
    def most(self) -> float:
        """The margin of equivalence, with the floor."""
        return max(self.equivalence, self.floor or 0.0)

    def __str__(self) -> str:
        pairs = f" of {self.floor_pairs} pairs" if self.floor_pairs else ""
        floor = f", A/A floor {100 * self.floor:.3g} %{pairs}" if self.floor else ""
        return (
            f"{self.of.value}: margin {100 * self.least:.3g} %, equivalence {100 * self.most:.3g} %,"
            f" false discoveries {100 * self.q:g} %{floor}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentFact:
    """One thing about the environment, on both sides."""

    name: str
    base: str
    new: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentEvent:
    """So many cells moved one way that their own code is not the likely cause."""

    direction: Change
    """``regression`` or ``improvement``."""
    moved: int
    timed: int
    changed: tuple[EnvironmentFact, ...]
    """What is recorded to differ between the sides; empty: nothing that is recorded."""

    def __str__(self) -> str:
        way = "worse" if self.direction is Change.REGRESSION else "better"
        what = "; ".join(f"{fact.name}: {fact.base} → {fact.new}" for fact in self.changed)
        return (
            f"{self.moved} of {self.timed} timed cells moved together, all {way}: an event of the environment,"
            f" not of the code; changed: {what or 'nothing that is recorded'}"
        )


_SIDES: Final[tuple[tuple[str, pl.DataType], ...]] = (
    ("status", pl.String()),
    ("fault", pl.String()),
    ("message", pl.String()),
    ("cell_id", pl.String()),
    ("candidate_sha256", pl.String()),
    ("value", pl.Float64()),
    ("sessions", pl.Int64()),
    ("sm_clock_mhz", pl.Float64()),
)

ROWS: Final[dict[str, pl.DataType]] = {
    **dict.fromkeys(("gpu", "toolchain", "dtype", "problem", "workload", "candidate"), pl.String()),
    "change": pl.Enum([change.value for change in Change]),
    "reason": pl.String(),
    "ratio": pl.Float64(),
    "ratio_low": pl.Float64(),
    "ratio_high": pl.Float64(),
    "cycles_ratio": pl.Float64(),
    "p": pl.Float64(),
    "q": pl.Float64(),
    "test": pl.String(),
    "environment": pl.Boolean(),
    "differs": pl.String(),
    **{f"{side}_{name}": dtype for side in ("base", "new") for name, dtype in _SIDES},
}
"""One row per workload of a cell. ``value``: geometric mean of session medians, in the quantity's unit; ``ratio``: new
÷ base of it, with its 95 % interval; ``cycles_ratio``: the same of cycles; ``p``: of no difference, two-sided; ``q``:
the same after Benjamini and Hochberg; ``test``: ``paired`` or ``welch``; ``environment``: moved with the event told on
top; ``differs``: what else is not the same on both sides (``candidate, driver``). The axis compared reads ``A → B``.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What came of a comparison."""

    base: str
    """What the base side is called."""
    new: str
    axis: ComparisonAxis
    rules: ComparisonRules
    rows: pl.DataFrame
    """With the columns :data:`ROWS`, the worst first."""
    event: EnvironmentEvent | None
    notes: Sequence[str]
    """What was left out and why, and what to be careful with; whole sentences."""

    def counts(self) -> Mapping[Change, int]:
        """How many rows there are of every change that there is, in the order of :class:`Change`."""
        found = dict(self.rows.group_by("change").len().iter_rows())
        return {change: found[change.value] for change in Change if change.value in found}

    def flagged(self) -> pl.DataFrame:
        """Regressions that nobody accepted, and what broke."""
        return self.rows.filter(pl.col("change").is_in([change.value for change in FLAGGED]))

    def flagged_said(self) -> str:
        """How many rows there are of each flagged change: ``1 broke, 2 regression``; empty where there are none."""
        counts = self.counts()
        return ", ".join(f"{counts[change]} {change.value}" for change in FLAGGED if change in counts)
