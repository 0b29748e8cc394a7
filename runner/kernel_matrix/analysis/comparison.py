"""Axes, quantities, rules and results of :mod:`kernel_matrix.analysis.compare`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

import polars as pl

from kernel_matrix.analysis.sentences import listed
from kernel_matrix.errors import UsageError
from kernel_matrix.measure.verdict import MARGIN

EQUIVALENCE: Final = 0.02
"""Two sides are equivalent if their difference is shown to be within this share."""
FALSE_DISCOVERIES: Final = 0.01
"""Expected share of false alarms among reported differences (Benjamini and Hochberg's q)."""
ENVIRONMENT_SHARE: Final = 0.30
"""If more than this share of the timed cells move in one direction, the environment is the likely cause."""
ENVIRONMENT_CELLS: Final = 3
"""Fewest cells for an event of the environment: one cell of two is no evidence."""


class ComparisonAxis(str, Enum):
    """The axis in which base and new differ."""

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
    """Baseline ÷ candidate, both of one session; less is worse. Clocks affect both and cancel."""
    CYCLES = "cycles"
    """The candidate's time × its SM clock; more is worse. Null where the clock is unknown."""

    @property
    def sign(self) -> int:
        """1 where more is worse, -1 where less is."""
        return -1 if self is ComparedQuantity.SPEEDUP else 1


class Change(str, Enum):
    """Result of comparing one workload of one cell; in the order in which they are shown."""

    BROKE = "broke"
    """Passed in base, fails in new by the candidate's own fault."""
    REGRESSION = "regression"
    """Significantly worse, and shown to be by more than the margin; in cycles too where the clocks are known."""
    ACCEPTED = "accepted"
    """A regression that was accepted, with a reason and a date."""
    MISSING = "missing"
    """In base, and not in new."""
    INCONCLUSIVE = "inconclusive"
    """Neither a difference nor equivalence is shown, or a side has no result; see the row's reason."""
    BOTH_FAILED = "both_failed"
    """Fails on both sides by the candidate's own fault."""
    FIXED = "fixed"
    """Failed in base, passes in new."""
    IMPROVEMENT = "improvement"
    """The same in the other direction."""
    NEW = "new"
    """In new, and not in base."""
    EQUIVALENT = "equivalent"
    """Shown to differ by less than the margin of equivalence."""


class Answered(str, Enum):
    """Answer of a comparison as a whole."""

    FINE = "fine"
    """Compared, and nothing broke or is shown to be worse."""
    WORSE = "worse"
    """Something broke or is worse, and is not accepted."""
    NOT_COMPARED = "not_compared"
    """No row says anything about both sides."""


FLAGGED: Final = (Change.BROKE, Change.REGRESSION)
"""Changes that fail a build, and that ``--confirm`` runs again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonRules:
    """Margins and error rates of a comparison."""

    of: ComparedQuantity = ComparedQuantity.TIME
    margin: float = MARGIN
    """Share that a difference has to exceed to matter, shown by a one-sided test at 5 %."""
    equivalence: float = EQUIVALENCE
    q: float = FALSE_DISCOVERIES

    def check(self) -> None:
        """Check that every margin is a share.

        Raises:
            UsageError: One is not.
        """
        for name, value in (("margin", self.margin), ("equivalence", self.equivalence)):
            if not 0 <= value < 1:
                raise UsageError(f"--{name} {value:g} is no share from 0 to below 1", next_step="0.01 means 1 %")
        if not 0 < self.q < 1:
            raise UsageError(f"--q {self.q:g} is no share between 0 and 1", next_step="0.01 means 1 %")

    def __str__(self) -> str:
        return (
            f"{self.of.value}: margin {100 * self.margin:.3g} %, equivalence {100 * self.equivalence:.3g} %,"
            f" false discoveries {100 * self.q:g} %"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentFact:
    """One fact about the environment, on both sides."""

    name: str
    base: str
    new: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentEvent:
    """Many cells that moved one way together, so that their code is not the likely cause."""

    direction: Change
    """``regression`` or ``improvement``."""
    moved: int
    timed: int
    changed: tuple[EnvironmentFact, ...]
    """Recorded facts that differ between the sides."""

    def __str__(self) -> str:
        way = "worse" if self.direction is Change.REGRESSION else "better"
        what = "; ".join(f"{fact.name}: {fact.base} → {fact.new}" for fact in self.changed)
        return (
            f"{self.moved} of {self.timed} timed cells moved together, all {way}: an event of the environment,"
            f" not of the code; changed: {what or 'nothing recorded'}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OverallChange:
    """The change of all timed rows of a slice together."""

    by: str
    """What the slice is one of: ``all``, ``gpu`` or ``category``."""
    name: str
    """The slice."""
    rows: int
    problems: int
    ratio: float
    """Geometric mean of new ÷ base over problems, of which each counts once."""
    low: float | None
    """95 % interval of ``ratio``, from the differences between problems; None for a single problem."""
    high: float | None
    higher: int
    """Rows with a ratio above 1."""
    lower: int
    sign_p: float
    """Two-sided p of the sign test: rows are as often above 1 as below."""
    moved: int
    """Rows that are shown to have changed, for better or worse."""

    def __str__(self) -> str:
        interval = (
            f" (95 % interval {_as_change(self.low)} to {_as_change(self.high)})" if self.low and self.high else ""
        )
        of = "1 problem" if self.problems == 1 else f"{self.problems} problems"
        return (
            f"{_as_change(self.ratio)}{interval} in the mean over {of}; {self.moved} of {self.rows} rows are shown to"
            f" have changed; {self.higher} are above, {self.lower} below (sign test p {self.sign_p:.2g})"
        )


def _as_change(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.2f} %"


_SIDES: Final[tuple[tuple[str, pl.DataType], ...]] = (
    ("status", pl.String()),
    ("fault", pl.String()),
    ("message", pl.String()),
    ("cell_id", pl.String()),
    ("candidate_sha256", pl.String()),
    ("value", pl.Float64()),
    ("sessions", pl.Int64()),
    ("runs", pl.Int64()),
    ("sm_clock_mhz", pl.Float64()),
)

ROWS: Final[dict[str, pl.DataType]] = {
    **dict.fromkeys(("gpu", "toolchain", "dtype", "problem"), pl.String()),
    "ranks": pl.Int32(),
    **dict.fromkeys(("workload", "candidate"), pl.String()),
    "category": pl.String(),
    "change": pl.Enum([change.value for change in Change]),
    "reason": pl.String(),
    "ratio": pl.Float64(),
    "ratio_low": pl.Float64(),
    "ratio_high": pl.Float64(),
    "smallest": pl.Float64(),
    "cycles_ratio": pl.Float64(),
    "p": pl.Float64(),
    "q": pl.Float64(),
    "test": pl.String(),
    "environment": pl.Boolean(),
    "differs": pl.String(),
    **{f"{side}_{name}": dtype for side in ("base", "new") for name, dtype in _SIDES},
}
"""Columns, one row per workload of a cell. ``value``: geometric mean of session medians, in the quantity's unit;
``ratio``: new ÷ base, with its 95 % interval; ``smallest``: the smallest change, as a share, that would have been found
in 9 of 10 cases; ``cycles_ratio``: the ratio of cycles; ``p``: two-sided, of no difference; ``q``: p adjusted after
Benjamini and Hochberg; ``test``: ``paired`` or ``unpaired``; ``environment``: moved
with the event of the environment; ``differs``: other differences between the sides (``candidate, driver``). The
compared axis reads ``A → B``.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Result of a comparison."""

    base: str
    """Name of the base side."""
    new: str
    axis: ComparisonAxis
    rules: ComparisonRules
    rows: pl.DataFrame
    """Rows with the columns :data:`ROWS`, the worst first."""
    overall: Sequence[OverallChange]
    """All timed rows together, then by GPU and by category."""
    event: EnvironmentEvent | None
    notes: Sequence[str]
    """Omissions with their reasons, and cautions; whole sentences."""

    @property
    def answer(self) -> Answered:
        """The answer in one word."""
        if not self.flagged().is_empty():
            return Answered.WORSE
        return Answered.FINE if self.compared else Answered.NOT_COMPARED

    @property
    def compared(self) -> int:
        """Number of rows that say something about both sides."""
        return self.rows.height - sum(self.not_compared().values())

    def not_compared(self) -> Mapping[str, int]:
        """Count the rows that could not be compared, by reason, the most frequent first."""
        only = {Change.MISSING.value: "in base only", Change.NEW.value: "in new only"}
        change = pl.col("change").cast(pl.String)
        silent = change.is_in(list(only)) | ((change == Change.INCONCLUSIVE.value) & pl.col("p").is_null())
        reason = change.replace_strict(only, default=pl.col("reason"), return_dtype=pl.String)
        counted = self.rows.filter(silent).group_by(reason=reason).len().sort("len", "reason", descending=[True, False])
        return dict(counted.iter_rows())

    @property
    def headline(self) -> str:
        """The answer in one sentence: what is worse, or that nothing is, and how much could not be compared."""
        reasons = self.not_compared()
        missing = (
            f"{sum(reasons.values())} could not be compared: {listed([f'{n} {why}' for why, n in reasons.items()], 3)}"
        )
        rows = "1 row compared" if self.compared == 1 else f"{self.compared} rows compared"
        if self.answer is Answered.NOT_COMPARED:
            return f"nothing could be compared{f': of {self.rows.height} rows {missing}' if reasons else ''}"
        said = self.flagged_said() or "nothing broke and nothing is shown to be slower"
        return f"{said}, of {rows}{f'; {missing}' if reasons else ''}"

    def counts(self) -> Mapping[Change, int]:
        """Count the rows of every change that occurs, in the order of :class:`Change`."""
        found = dict(self.rows.group_by("change").len().iter_rows())
        return {change: found[change.value] for change in Change if change.value in found}

    def flagged(self) -> pl.DataFrame:
        """Return the rows that broke or are regressions without acceptance."""
        return self.rows.filter(pl.col("change").is_in([change.value for change in FLAGGED]))

    def flagged_said(self) -> str:
        """Write the number of rows of each flagged change: ``1 broke, 2 regression``; empty if there are none."""
        counts = self.counts()
        return ", ".join(f"{counts[change]} {change.value}" for change in FLAGGED if change in counts)
