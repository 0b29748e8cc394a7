"""``compare``: base against new, cell by cell.

Cells are joined by :data:`~kernel_matrix.analysis.outcomes.CELL_KEY` without the compared axis, so a candidate whose
source changed is compared with its earlier version. On each side the latest attempt on each GPU unit decides the
outcome; its times are those of all runs that passed with the same content. Where both sides ran on the same unit, only
such units are compared.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from datetime import date
from typing import Final

import numpy as np
import polars as pl

from kernel_matrix.analysis.accepted import Acceptance
from kernel_matrix.analysis.compared_sides import (
    ABSENT,
    CONTENT,
    FAILED,
    PLACE,
    UNKNOWN,
    Sides,
    grid_of,
    pick_attempts,
    side_of,
    with_moments,
)
from kernel_matrix.analysis.compared_times import MOST_SMALLEST, with_tests
from kernel_matrix.analysis.comparison import (
    ENVIRONMENT_CELLS,
    ENVIRONMENT_SHARE,
    ROWS,
    Change,
    ComparedQuantity,
    Comparison,
    ComparisonAxis,
    ComparisonRules,
    EnvironmentEvent,
    EnvironmentFact,
)
from kernel_matrix.analysis.outcomes import CELL_KEY
from kernel_matrix.analysis.overall import overall_changes
from kernel_matrix.analysis.sentences import listed, rough_percent, sentence
from kernel_matrix.errors import NothingSelectedError, UsageError

_COLUMN: Final = {
    ComparisonAxis.GPU: pl.col("gpu"),
    ComparisonAxis.TOOLCHAIN: pl.col("toolchain"),
    ComparisonAxis.DTYPE: pl.col("dtype").cast(pl.String),
    ComparisonAxis.DRIVER: pl.col("driver"),
    ComparisonAxis.NIGHT: pl.col("run_started_at").dt.date().cast(pl.String),
}
_SAME_CODE: Final = (ComparisonAxis.RESULTS, ComparisonAxis.NIGHT)
"""Axes along which most cells are expected to stay as they are."""
_LISTED: Final = 3
"""Values of one fact that are listed."""
_SAME_CLOCK: Final = 0.001
"""Clocks that differ by less than this share count as equal."""
_CYCLES_SHARE: Final = 0.5
"""Cycles have to differ by this share of the margin: the sign of a smaller difference is chance."""


def compare(
    base: pl.LazyFrame,
    new: pl.LazyFrame,
    how: ComparisonAxis = ComparisonAxis.RESULTS,
    *,
    names: tuple[str, str] = ("base", "new"),
    rules: ComparisonRules | None = None,
    accepted: Sequence[Acceptance] = (),
    today: date | None = None,
    mostly_unchanged: bool | None = None,
) -> Comparison:
    """Compare two frames with the columns of ``CELLS``.

    Args:
        base: The base side.
        new: The new side.
        how: The axis in which the two differ; see :func:`between` for two sides of one set.
        names: Names of the sides; for an axis, its values.
        rules: Margins and error rates.
        accepted: Accepted regressions.
        today: The day for which acceptances must hold; None: all hold.
        mostly_unchanged: Most cells are expected to stay as they are, so that the spread of all differences is noise;
            None: as ``how`` suggests.

    Raises:
        NothingSelectedError: Neither side has a cell.
    """
    rules = rules or ComparisonRules()
    key = [name for name in CELL_KEY if name not in (how.value, "workload")]
    picked_base, picked_new, left_out = pick_attempts(base, new, key, units_matter=how is not ComparisonAxis.GPU)
    sides = side_of(picked_base, key, rules.of), side_of(picked_new, key, rules.of)
    if all(side.attempts.is_empty() for side in sides):
        raise NothingSelectedError("neither side has a cell", next_step="Name merged tables or result folders.")
    grid = grid_of(sides, key)
    unchanged = how in _SAME_CODE if mostly_unchanged is None else mostly_unchanged
    rows, on_noise = with_tests(with_moments(grid, sides, key), sides, key, rules, mostly_unchanged=unchanged)
    rows = rows.with_columns(
        **_judged(rules, clocks_matter=rules.of is ComparedQuantity.TIME and how is not ComparisonAxis.GPU)
    )
    event = _event(rows)
    rows = rows.with_columns(environment=_moved_with(event))
    if how.value in CELL_KEY:
        rows = rows.with_columns(pl.lit(" → ".join(names)).alias(how.value))
    rows, on_accepted = _accepted(rows, accepted, today)
    notes = (*_notes(sides, left_out, names, key), *on_noise, *_notes_on_rows(rows, rules), *on_accepted)
    finished = _finished(rows)
    return Comparison(
        base=names[0],
        new=names[1],
        axis=how,
        rules=rules,
        rows=finished,
        overall=overall_changes(finished),
        event=event,
        notes=notes,
    )


def between(cells: pl.LazyFrame, axis: ComparisonAxis, base: str, new: str) -> tuple[pl.LazyFrame, pl.LazyFrame]:
    """Split one set of results into the cells where ``axis`` is ``base`` and those where it is ``new``.

    Raises:
        UsageError: The values are equal, or the axis has no values.
        NothingSelectedError: A side has no cell; lists the values there are.
    """
    if axis is ComparisonAxis.RESULTS or base == new:
        raise UsageError(f"{axis.value}={base},{new} does not name two sides", next_step="e.g. toolchain=cu124,cu130")
    column = _COLUMN[axis]
    there = cells.select(column.alias("value").drop_nulls().unique().sort()).collect()["value"].to_list()
    for value in (base, new):
        if value not in there:
            raise NothingSelectedError(
                f"no cell has {axis.value} {value!r}", next_step=f"The values are {listed(there, 10) or 'none'}."
            )
    return cells.filter(column == base), cells.filter(column == new)


def _judged(rules: ComparisonRules, *, clocks_matter: bool) -> dict[str, pl.Expr]:
    """Judge each row: ``change`` and its ``reason``, and ``moved``: 1 worse, -1 better, regardless of the clocks."""
    base, new = pl.col("base_state"), pl.col("new_state")
    worse = pl.col("effect") * rules.of.sign
    least = float(np.log1p(rules.margin))
    sure = pl.col("q") < rules.q
    # More sessions do not resolve less than a tick: all medians of a short kernel may sit on one.
    differs = sure & (worse.abs() - pl.col("strict") > (pl.col("tick") + 1 + rules.margin).log())
    equal = worse.abs() + pl.col("strict") <= float(np.log1p(rules.equivalence))
    # Null where a clock is unknown: then the time alone decides.
    in_cycles = (pl.col("cycles") * worse.sign() > _CYCLES_SHARE * least).fill_null(value=True)
    believed = in_cycles if clocks_matter else pl.lit(value=True)
    unknown = pl.concat_str(
        *(
            pl.when(state == UNKNOWN).then(sentence(f"{side}: {{}} (fault {{}})", f"{side}_status", f"{side}_fault"))
            for side, state in (("base", base), ("new", new))
        ),
        separator="; ",
        ignore_nulls=True,
    )
    fewest = pl.min_horizontal(pl.col("base_sessions").fill_null(0), pl.col("new_sessions").fill_null(0))
    rules_in_order: list[tuple[pl.Expr, Change, pl.Expr]] = [
        (base == ABSENT, Change.NEW, pl.lit("")),
        (new == ABSENT, Change.MISSING, pl.lit("in base only")),
        ((base == UNKNOWN) | (new == UNKNOWN), Change.INCONCLUSIVE, unknown),
        ((base == FAILED) & (new == FAILED), Change.BOTH_FAILED, pl.col("new_status")),
        (new == FAILED, Change.BROKE, pl.concat_str("new_status", pl.lit(": "), "new_message", ignore_nulls=True)),
        (base == FAILED, Change.FIXED, sentence("was {}", "base_status")),
        (fewest == 0, Change.INCONCLUSIVE, pl.lit(f"no {rules.of.value} on one side")),
        (differs & ~believed, Change.INCONCLUSIVE, pl.lit("clocks moved")),
        (differs & (worse > 0), Change.REGRESSION, pl.lit("")),
        (differs & (worse < 0), Change.IMPROVEMENT, pl.lit("")),
        (equal & (pl.col("tick") <= rules.equivalence), Change.EQUIVALENT, pl.lit("")),
        (
            sure & (worse.abs() - pl.col("strict") > least),
            Change.INCONCLUSIVE,
            pl.lit("less than the margin and a tick of the clock"),
        ),
        (sure & (worse.abs() > least), Change.INCONCLUSIVE, pl.lit("a difference, not shown to be beyond the margin")),
        (
            pl.col("tick") > rules.equivalence,
            Change.INCONCLUSIVE,
            pl.lit("a tick of the clock is more than the margin of equivalence"),
        ),
        (worse.abs() > least, Change.INCONCLUSIVE, pl.lit("more than the margin, but not significant")),
    ]
    change = pl.lit(Change.INCONCLUSIVE.value)
    reason = pl.lit("the interval is wider than the margin of equivalence")
    for holds, then, why in reversed(rules_in_order):
        applies = holds.fill_null(value=False)
        change = pl.when(applies).then(pl.lit(then.value)).otherwise(change)
        reason = pl.when(applies).then(why).otherwise(reason)
    return {"change": change, "reason": reason, "moved": pl.when(differs).then(worse.sign()).fill_null(0.0)}


def _event(rows: pl.DataFrame) -> EnvironmentEvent | None:
    timed = rows.filter(pl.col("p").is_not_null())
    for direction, change in ((1, Change.REGRESSION), (-1, Change.IMPROVEMENT)):
        moved = timed.filter(pl.col("moved") == direction)
        if moved.height >= ENVIRONMENT_CELLS and moved.height > ENVIRONMENT_SHARE * timed.height:
            return EnvironmentEvent(
                direction=change, moved=moved.height, timed=timed.height, changed=tuple(_facts(moved))
            )
    return None


def _moved_with(event: EnvironmentEvent | None) -> pl.Expr:
    if event is None:
        return pl.lit(value=False)
    return pl.col("p").is_not_null() & (pl.col("moved") == (1 if event.direction is Change.REGRESSION else -1))


def _facts(moved: pl.DataFrame) -> Iterator[EnvironmentFact]:
    """Yield the recorded facts that differ between the sides of ``moved``."""
    for name, column in PLACE.items():
        base, new = (
            moved[f"{side}_{column}"].cast(pl.String).drop_nulls().unique().sort().to_list() for side in ("base", "new")
        )
        if base != new:
            yield EnvironmentFact(
                name=name, base=listed(base, _LISTED) or "unknown", new=listed(new, _LISTED) or "unknown"
            )
    was, now = (_median(moved[f"{side}_sm_clock_mhz"]) for side in ("base", "new"))
    if was is not None and now is not None and abs(now - was) > _SAME_CLOCK * was:
        yield EnvironmentFact(name="SM clock", base=f"{was:.0f} MHz", new=f"{now:.0f} MHz")
    anchor = _median(moved["new_anchor"] - moved["base_anchor"])
    if anchor is not None:
        yield EnvironmentFact(
            name="the judge's own kernel", base="100 %", new=f"{100 * float(np.exp(anchor)):.1f} % of that time"
        )


def _median(values: pl.Series) -> float | None:
    found = values.median()
    return found if isinstance(found, float) else None


def _accepted(rows: pl.DataFrame, accepted: Sequence[Acceptance], today: date | None) -> tuple[pl.DataFrame, list[str]]:
    """Mark regressions that an entry accepts; also notes entries that expired or match none."""
    flagged = rows.filter(pl.col("change") == Change.REGRESSION.value).select(
        "row", *(name for name in CELL_KEY if name != "workload")
    )
    reasons: dict[int, str] = {}
    notes = []
    for entry in accepted:
        if today is not None and entry.until < today:
            notes.append(f"The acceptance of {entry} ended on {entry.until}; it is not applied.")
            continue
        matching = [row["row"] for row in flagged.iter_rows(named=True) if entry.matches(row)]
        if not matching:
            notes.append(f"The acceptance of {entry} matches no regression.")
        for number in matching:
            reasons.setdefault(number, f"{entry.reason} (until {entry.until})")
    if not reasons:
        return rows, notes
    reason = pl.col("row").replace_strict(reasons, default=None, return_dtype=pl.String)
    return rows.with_columns(
        change=pl.when(reason.is_not_null()).then(pl.lit(Change.ACCEPTED.value)).otherwise("change"),
        reason=pl.coalesce(reason, "reason"),
    ), notes


def _finished(rows: pl.DataFrame) -> pl.DataFrame:
    """Select the columns :data:`ROWS`, the worst first."""
    names = {**CONTENT, **PLACE}
    differs = pl.concat_str(
        *(
            pl.when(pl.col(f"base_{column}") != pl.col(f"new_{column}")).then(pl.lit(name))
            for name, column in names.items()
        ),
        separator=", ",
        ignore_nulls=True,
    )
    rows = rows.with_columns(
        ratio=pl.col("effect").exp(),
        ratio_low=(pl.col("effect") - pl.col("reach")).exp(),
        ratio_high=(pl.col("effect") + pl.col("reach")).exp(),
        cycles_ratio=pl.col("cycles").exp(),
        differs=differs,
        category=pl.coalesce("new_category", "base_category"),
        base_value=pl.col("base_mean").exp(),
        new_value=pl.col("new_mean").exp(),
        **{f"{side}_sessions": pl.col(f"{side}_sessions").fill_null(0) for side in ("base", "new")},
    )
    return rows.select(pl.col(name).cast(dtype) for name, dtype in ROWS.items()).sort(
        "change", pl.col("ratio").log().abs(), *CELL_KEY, descending=[False, True, *(False for _ in CELL_KEY)],
        nulls_last=True,
    )  # fmt: skip


def _notes(sides: Sides, left_out: int, names: tuple[str, str], key: Sequence[str]) -> Iterator[str]:
    """Yield notes on cells and sessions that were left out or have no partner."""
    for name, side in zip(names, sides, strict=True):
        if side.attempts.is_empty():
            yield f"{name} has no cell."
        if side.cut:
            yield f"{side.cut} sessions of {name} are left out: their value is not positive and finite."
        if side.units:
            yield f"{side.units} cells of {name} ran on several units; their sessions are pooled."
    partners = sides[0].attempts.join(sides[1].attempts, on=list(key), how="semi", nulls_equal=True).height
    if not partners and not any(side.attempts.is_empty() for side in sides):
        yield f"No cell of {names[0]} has a partner in {names[1]}: nothing is compared."
    if left_out:
        yield f"{left_out} attempts are left out: they ran on a unit of one side only, and both sides share another."


def _notes_on_rows(rows: pl.DataFrame, rules: ComparisonRules) -> Iterator[str]:
    """Yield notes on rows that are inconclusive or less certain than they look."""
    unsure = rows.filter(pl.col("change") == Change.INCONCLUSIVE.value).group_by("reason").len().sort("len", "reason")
    for reason, number in reversed(unsure.rows()):
        yield f"{_rows(number)} inconclusive: {reason}."
    smallest = rows.filter(pl.col("p").is_not_null())["smallest"].sort(nulls_last=True)
    if smallest.len():
        middle, most = smallest[(smallest.len() - 1) // 2], smallest[-1]
        worst = "" if smallest.len() == 1 else f", and in the noisiest of {_or_more(most)}"
        yield f"In 9 of 10 cases a change of {_or_more(middle)} would have been found in half of the rows{worst}."
    unchecked = rows.filter(pl.col("p").is_not_null() & pl.col("cycles").is_null()).height
    if unchecked and rules.of is ComparedQuantity.TIME:
        yield f"{_rows(unchecked)} judged by time alone: the SM clock is unknown on at least one side."
    changed = rows.filter(pl.col("base_problem_sha256") != pl.col("new_problem_sha256")).height
    if changed:
        yield f"{_rows(changed)} compared although the problem's content changed; see the column differs."


def _or_more(share: float | None) -> str:
    return rough_percent(share) if share is not None else f"more than {math.expm1(MOST_SMALLEST):.0f}-fold"


def _rows(number: int) -> str:
    return "1 row is" if number == 1 else f"{number} rows are"
