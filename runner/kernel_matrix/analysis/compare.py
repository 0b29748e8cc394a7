"""``compare``: base against new, cell by cell.

Cells are joined by :data:`~kernel_matrix.analysis.outcomes.CELL_KEY` without the compared axis, so a candidate whose
source changed is compared with its earlier version. On each side the latest attempt on each GPU unit counts; where
both sides ran on the same unit, only such units are compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Final

import numpy as np
import polars as pl

from kernel_matrix.analysis.accepted import Acceptance
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
from kernel_matrix.analysis.differences import (
    FEWEST_TO_MODERATE,
    LogMoments,
    benjamini_hochberg,
    moderate,
    paired,
    welch,
)
from kernel_matrix.analysis.identical import FEWEST_PAIRS, differences, floor_of
from kernel_matrix.analysis.outcomes import CELL_KEY
from kernel_matrix.analysis.sentences import listed, sentence
from kernel_matrix.errors import NothingSelectedError, UsageError
from kernel_matrix.measure.intervals import LEVEL
from kernel_matrix.model.enums import Fault, Status
from kernel_matrix.results.attempts import latest_attempts

_COLUMN: Final = {
    ComparisonAxis.GPU: pl.col("gpu"),
    ComparisonAxis.TOOLCHAIN: pl.col("toolchain"),
    ComparisonAxis.DTYPE: pl.col("dtype").cast(pl.String),
    ComparisonAxis.DRIVER: pl.col("driver"),
    ComparisonAxis.NIGHT: pl.col("run_started_at").dt.date().cast(pl.String),
}
_CONTENT: Final = {"candidate": "candidate_sha256", "problem": "problem_sha256"}
_PLACE: Final = {
    "driver": "driver",
    "image": "image_id",
    "unit": "gpu_uuid",
    "host": "hostname",
    "torch": "torch",
    "triton": "triton",
    "CUDA": "cuda",
    "clocks": "clock_state",
}
_ATTEMPT: Final = ("status", "fault", "message", "cell_id", *_CONTENT.values(), *_PLACE.values())
_LISTED: Final = 3
"""Values of one fact that are listed."""
_FEWEST_STEPS: Final = 20
"""Different medians from which the smallest step between two estimates the clock's tick."""
_SAME_CLOCK: Final = 0.001
"""Clocks that differ by less than this share count as equal."""
_CYCLES_SHARE: Final = 0.5
"""Cycles have to differ by this share of the margin: the sign of a smaller difference is chance."""

_ABSENT, _PASSED, _FAILED, _UNKNOWN = "absent", "passed", "failed", "unknown"
_RUN = ("run_id", "gpu_uuid", "session")


@dataclass(frozen=True, slots=True)
class _Side:
    """One side of the comparison, by cell and by session."""

    attempts: pl.DataFrame
    """One row per cell: its outcome."""
    offered: pl.DataFrame
    """The workloads of each cell that has rows of any."""
    sessions: pl.DataFrame
    """One row per session that passed and has a time: the key, workload, ``value``, and the columns to pair by."""
    cut: int
    """Sessions whose time is not positive and finite."""
    units: int
    """Cells that ran on more than one unit."""
    tick_ns: float
    """The smallest step between two medians: the tick of the device's clock, or half of it; 0 if unknown."""


def compare(
    base: pl.LazyFrame,
    new: pl.LazyFrame,
    how: ComparisonAxis = ComparisonAxis.RESULTS,
    *,
    names: tuple[str, str] = ("base", "new"),
    rules: ComparisonRules | None = None,
    accepted: Sequence[Acceptance] = (),
    today: date | None = None,
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

    Raises:
        NothingSelectedError: Neither side has a cell.
    """
    rules, on_floor = _with_floor(rules or ComparisonRules(), base, new)
    key = [name for name in CELL_KEY if name not in (how.value, "workload")]
    picked_base, picked_new, left_out = _picked(base, new, key, units_matter=how is not ComparisonAxis.GPU)
    sides = _side(picked_base, key, rules.of), _side(picked_new, key, rules.of)
    if all(side.attempts.is_empty() for side in sides):
        raise NothingSelectedError("neither side has a cell", next_step="Name merged tables or result folders.")
    grid = _grid(sides, key)
    rows = _tested(_measured(grid, sides, key), sides, key, rules)
    rows = rows.with_columns(
        **_judged(rules, clocks_matter=rules.of is ComparedQuantity.TIME and how is not ComparisonAxis.GPU)
    )
    event = _event(rows)
    rows = rows.with_columns(environment=_moved_with(event))
    if how.value in CELL_KEY:
        rows = rows.with_columns(pl.lit(" → ".join(names)).alias(how.value))
    rows, on_accepted = _accepted(rows, accepted, today)
    notes = (*on_floor, *_notes(sides, left_out, names, key), *_notes_on_rows(rows, rules.of), *on_accepted)
    return Comparison(
        base=names[0], new=names[1], axis=how, rules=rules, rows=_finished(rows), event=event, notes=notes
    )


def _with_floor(rules: ComparisonRules, *sides: pl.LazyFrame) -> tuple[ComparisonRules, list[str]]:
    """Add the noise floor from identical code on either side, if ``rules`` has none."""
    if rules.floor is not None:
        return rules, []
    found = pl.concat([differences(cells) for cells in sides])
    floor = floor_of(found)
    if floor is not None:
        return replace(rules, floor=floor, floor_pairs=len(found)), []
    few = f"No noise floor: there are {len(found)} pairs of identical code, and {FEWEST_PAIRS} are needed."
    return replace(rules, floor=0.0), [few] if len(found) else []


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


def _picked(
    base: pl.LazyFrame, new: pl.LazyFrame, key: Sequence[str], *, units_matter: bool
) -> tuple[pl.DataFrame, pl.DataFrame, int]:
    """Read the rows of the attempts that count on each side, and count those left out for their unit."""
    words = [pl.col(name).cast(pl.String) for name in key]
    latest = [
        latest_attempts(cells.with_columns(words), (*key, "host_id", "gpu_uuid")).collect() for cells in (base, new)
    ]
    left_out = 0
    if units_matter:
        unit = [*key, "gpu_uuid"]
        shared = latest[0].join(latest[1], on=unit, how="semi", nulls_equal=True).select(unit).unique()
        cells = shared.select(key).unique()
        for number, frame in enumerate(latest):
            alone = frame.join(cells, on=key, how="anti", nulls_equal=True)
            kept = pl.concat([alone, frame.join(shared, on=unit, how="semi", nulls_equal=True)])
            left_out += frame.height - kept.height
            latest[number] = kept
    picked = [
        _read(cells).join(records.lazy().select("record"), on="record", how="semi").collect()
        for cells, records in zip((base, new), latest, strict=True)
    ]
    return picked[0], picked[1], left_out


def _read(cells: pl.LazyFrame) -> pl.LazyFrame:
    """Select the columns that a comparison needs, enums as text."""
    times = ("candidate_median_ns", "speedup", "sm_clock_mhz", "anchor_compute_ns")
    names = ("record", *CELL_KEY, *_ATTEMPT, *_RUN, "started_at", "ended_at", "session_status", *times)
    words = ("dtype", "status", "fault", "session_status")
    return cells.select(
        pl.col(name).cast(pl.String) if name in words else pl.col(name) for name in dict.fromkeys(names)
    )


def _side(rows: pl.DataFrame, key: Sequence[str], of: ComparedQuantity) -> _Side:
    passed = pl.col("status") == Status.PASSED.value
    state = (
        pl.when(passed)
        .then(pl.lit(_PASSED))
        .when(pl.col("fault") == Fault.CANDIDATE.value)
        .then(pl.lit(_FAILED))
        .otherwise(pl.lit(_UNKNOWN))
    )
    value = {
        ComparedQuantity.TIME: pl.col("candidate_median_ns"),
        ComparedQuantity.SPEEDUP: pl.col("speedup"),
        ComparedQuantity.CYCLES: pl.col("candidate_median_ns") * pl.col("sm_clock_mhz") / 1000,
    }[of]
    attempts = rows.unique("record", keep="any").with_columns(state=state)
    # A cell that fails on one unit fails; a unit with an unknown outcome does not hide that of the others.
    worst = pl.col("state").replace_strict({_FAILED: 0, _PASSED: 1, _UNKNOWN: 2}, return_dtype=pl.Int8)
    by_cell = (
        attempts.sort(worst, "record")
        .group_by(key, maintain_order=True)
        .agg(pl.col("state", *_ATTEMPT).first(), pl.len().alias("units"))
    )
    timed = rows.filter(passed & (pl.col("session_status") == Status.PASSED.value)).select(
        *key, "workload", *_RUN, "started_at", "ended_at", value.alias("value"),
        ns=pl.col("candidate_median_ns"),
        clock=pl.when(pl.col("sm_clock_mhz") > 0).then("sm_clock_mhz"),
        anchor=pl.when(pl.col("anchor_compute_ns") > 0).then("anchor_compute_ns"),
    )  # fmt: skip
    good = pl.col("value").is_finite() & (pl.col("value") > 0)
    return _Side(
        attempts=by_cell,
        offered=rows.filter(pl.col("workload").is_not_null()).select(*key, "workload").unique(),
        sessions=timed.filter(good),
        cut=timed.filter(pl.col("value").is_not_null() & ~good).height,
        units=by_cell.filter(pl.col("units") > 1).height,
        tick_ns=_tick(timed.filter(good)["ns"]),
    )


def _tick(medians: pl.Series) -> float:
    different = medians.drop_nulls().unique().sort()
    least = different.diff().min() if different.len() >= _FEWEST_STEPS else None
    return least if isinstance(least, float) else 0.0


def _grid(sides: tuple[_Side, _Side], key: list[str]) -> pl.DataFrame:
    """Make one numbered row per cell and workload of either side, with the outcome on each side.

    A cell that failed before any workload counts for every workload that the other side has.
    """
    cells = pl.concat([side.attempts.select(key) for side in sides]).unique(maintain_order=True)
    workloads = pl.concat([side.offered for side in sides]).unique()
    grid = cells.join(workloads, on=key, how="left", nulls_equal=True)
    for prefix, side in zip(("base", "new"), sides, strict=True):
        attempts = side.attempts.rename({name: f"{prefix}_{name}" for name in ("state", *_ATTEMPT)}).drop("units")
        offered = side.offered.with_columns(pl.lit(value=True).alias("_offered"))
        state = pl.col(f"{prefix}_state")
        not_offered = (state == _PASSED) & pl.col("workload").is_not_null() & pl.col("_offered").is_null()
        grid = (
            grid.join(attempts, on=key, how="left", nulls_equal=True)
            .join(offered, on=[*key, "workload"], how="left", nulls_equal=True)
            .with_columns(
                pl.when(not_offered).then(pl.lit(_ABSENT)).otherwise(state).fill_null(_ABSENT).alias(f"{prefix}_state")
            )
            .drop("_offered")
        )
    return grid.with_row_index("row")


def _measured(grid: pl.DataFrame, sides: tuple[_Side, _Side], key: list[str]) -> pl.DataFrame:
    """Add the moments of both sides, ``base_mean`` and so on."""
    for prefix, side in zip(("base", "new"), sides, strict=True):
        log = pl.col("value").log()
        moments = (
            side.sessions.group_by(*key, "workload")
            .agg(
                pl.len().cast(pl.Int64).alias(f"{prefix}_sessions"),
                log.mean().alias(f"{prefix}_mean"),
                log.var().alias(f"{prefix}_variance"),
                pl.col("ns").mean().alias(f"{prefix}_ns"),
                pl.col("clock").mean().alias(f"{prefix}_sm_clock_mhz"),
                pl.col("anchor").log().mean().alias(f"{prefix}_anchor"),
            )
        )  # fmt: skip
        grid = grid.join(moments, on=[*key, "workload"], how="left", nulls_equal=True)
    return grid.sort("row")


def _pairs(grid: pl.DataFrame, sides: tuple[_Side, _Side], key: list[str]) -> pl.DataFrame:
    """Add paired differences of sessions that were measured in turns.

    In turns means: the same session number in the same run on the same unit, and the attempts overlap for at least half
    of the longer one.
    """
    base, new = (side.sessions for side in sides)
    joined = base.join(new, on=[*key, "workload", *_RUN], how="inner", suffix="_new")
    start, end = pl.max_horizontal("started_at", "started_at_new"), pl.min_horizontal("ended_at", "ended_at_new")
    longer = pl.max_horizontal(
        pl.col("ended_at") - pl.col("started_at"), pl.col("ended_at_new") - pl.col("started_at_new")
    )
    log = (pl.col("value_new") / pl.col("value")).log()
    found = (
        joined.filter((end - start) * 2 >= longer)
        .group_by(*key, "workload")
        .agg(pl.len().cast(pl.Int64).alias("pairs"), log.mean().alias("pair_mean"), log.var().alias("pair_variance"))
    )
    return grid.join(found, on=[*key, "workload"], how="left", nulls_equal=True).sort("row")


def _tested(rows: pl.DataFrame, sides: tuple[_Side, _Side], key: list[str], rules: ComparisonRules) -> pl.DataFrame:
    """Test each row: adds ``effect``, its 95 % ``reach``, ``p``, ``q``, ``test``, ``equal``, ``cycles``, ``tick``."""
    rows = _pairs(rows, sides, key)
    both = (pl.col("base_state") == _PASSED) & (pl.col("new_state") == _PASSED)
    enough = (pl.col("base_sessions") >= 2) & (pl.col("new_sessions") >= 2)
    in_pairs = (pl.col("pairs") == pl.col("base_sessions")) & (pl.col("pairs") == pl.col("new_sessions"))
    rows = rows.with_columns(
        test=pl.when(both & enough & in_pairs)
        .then(pl.lit("paired"))
        .when(both & enough)
        .then(pl.lit("welch"))
        .otherwise(None)
    )
    found = pl.concat([_test(rows.filter(pl.col("test") == test), test, rules) for test in ("paired", "welch")])
    found = found.with_columns(q=pl.Series(benjamini_hochberg(found["p"].to_numpy()), dtype=pl.Float64))
    effect = pl.col("new_mean") - pl.col("base_mean")
    clocks = (pl.col("new_sm_clock_mhz") / pl.col("base_sm_clock_mhz")).log()
    rows = rows.join(found, on="row", how="left").with_columns(
        effect=pl.coalesce("effect", pl.when(both).then(effect)),
    )
    in_cycles = {
        ComparedQuantity.TIME: pl.col("effect") + clocks,
        ComparedQuantity.CYCLES: pl.col("effect"),
        ComparedQuantity.SPEEDUP: pl.lit(None, pl.Float64),
    }
    tick = max(side.tick_ns for side in sides) / pl.min_horizontal("base_ns", "new_ns")
    return rows.with_columns(cycles=in_cycles[rules.of], tick=tick.fill_null(0.0))


def _test(rows: pl.DataFrame, test: str, rules: ComparisonRules) -> pl.DataFrame:
    if test == "paired":
        differences_of = paired(_moments(rows, "pairs", "pair"))
    else:
        differences_of = welch(_moments(rows, "base_sessions", "base"), _moments(rows, "new_sessions", "new"))
    found = moderate(differences_of)
    columns = {
        "effect": found.effect,
        "reach": found.reach(LEVEL),
        "p": found.p_values(),
        "equal": found.equivalent(rules.most),
    }
    return pl.DataFrame({"row": rows["row"], **columns}, schema_overrides={"equal": pl.Boolean})


def _moments(rows: pl.DataFrame, count: str, prefix: str) -> LogMoments:
    columns = {"count": count, "mean": f"{prefix}_mean", "variance": f"{prefix}_variance"}
    return LogMoments(**{name: rows[column].to_numpy().astype(np.float64) for name, column in columns.items()})


def _judged(rules: ComparisonRules, *, clocks_matter: bool) -> dict[str, pl.Expr]:
    """Judge each row: ``change`` and its ``reason``, and ``moved``: 1 worse, -1 better, regardless of the clocks."""
    base, new = pl.col("base_state"), pl.col("new_state")
    worse = pl.col("effect") * rules.of.sign
    least = float(np.log1p(rules.least))
    sure = pl.col("q") < rules.q
    # More sessions do not resolve less than a tick: all medians of a short kernel may sit on one.
    differs = sure & (worse.abs() > (pl.col("tick") + 1 + rules.least).log())
    # Null where a clock is unknown: then the time alone decides.
    in_cycles = (pl.col("cycles") * worse.sign() > _CYCLES_SHARE * least).fill_null(value=True)
    believed = in_cycles if clocks_matter else pl.lit(value=True)
    unknown = pl.concat_str(
        *(
            pl.when(state == _UNKNOWN).then(sentence(f"{side}: {{}} (fault {{}})", f"{side}_status", f"{side}_fault"))
            for side, state in (("base", base), ("new", new))
        ),
        separator="; ",
        ignore_nulls=True,
    )
    fewest = pl.min_horizontal(pl.col("base_sessions").fill_null(0), pl.col("new_sessions").fill_null(0))
    rules_in_order: list[tuple[pl.Expr, Change, pl.Expr]] = [
        (base == _ABSENT, Change.NEW, pl.lit("")),
        (new == _ABSENT, Change.MISSING, pl.lit("in base only")),
        ((base == _UNKNOWN) | (new == _UNKNOWN), Change.INCONCLUSIVE, unknown),
        ((base == _FAILED) & (new == _FAILED), Change.BOTH_FAILED, pl.col("new_status")),
        (new == _FAILED, Change.BROKE, pl.concat_str("new_status", pl.lit(": "), "new_message", ignore_nulls=True)),
        (base == _FAILED, Change.FIXED, sentence("was {}", "base_status")),
        (fewest == 0, Change.INCONCLUSIVE, pl.lit(f"no {rules.of.value} on one side")),
        (fewest == 1, Change.INCONCLUSIVE, pl.lit("one session on a side")),
        (differs & ~believed, Change.INCONCLUSIVE, pl.lit("clocks moved")),
        (differs & (worse > 0), Change.REGRESSION, pl.lit("")),
        (differs & (worse < 0), Change.IMPROVEMENT, pl.lit("")),
        (pl.col("equal") & (pl.col("tick") <= rules.most), Change.EQUIVALENT, pl.lit("")),
        (sure & (worse.abs() > least), Change.INCONCLUSIVE, pl.lit("less than the margin and a tick of the clock")),
        (pl.col("tick") > rules.most, Change.INCONCLUSIVE, pl.lit("a tick of the clock is more than the margin")),
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
    for name, column in _PLACE.items():
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
    names = {**_CONTENT, **_PLACE}
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
        base_value=pl.col("base_mean").exp(),
        new_value=pl.col("new_mean").exp(),
        **{f"{side}_sessions": pl.col(f"{side}_sessions").fill_null(0) for side in ("base", "new")},
    )
    return rows.select(pl.col(name).cast(dtype) for name, dtype in ROWS.items()).sort(
        "change", pl.col("ratio").log().abs(), *CELL_KEY, descending=[False, True, *(False for _ in CELL_KEY)],
        nulls_last=True,
    )  # fmt: skip


def _notes(sides: tuple[_Side, _Side], left_out: int, names: tuple[str, str], key: Sequence[str]) -> Iterator[str]:
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


def _notes_on_rows(rows: pl.DataFrame, of: ComparedQuantity) -> Iterator[str]:
    """Yield notes on rows that are inconclusive or less certain than they look."""
    unsure = rows.filter(pl.col("change") == Change.INCONCLUSIVE.value).group_by("reason").len().sort("len", "reason")
    for reason, number in reversed(unsure.rows()):
        yield f"{_rows(number)} inconclusive: {reason}."
    if 0 < rows["p"].count() < FEWEST_TO_MODERATE:
        yield (
            f"With fewer than {FEWEST_TO_MODERATE} timed cells each is judged by its own sessions alone:"
            " small differences need more sessions."
        )
    unchecked = rows.filter(pl.col("p").is_not_null() & pl.col("cycles").is_null()).height
    if unchecked and of is ComparedQuantity.TIME:
        yield f"{_rows(unchecked)} judged by time alone: the SM clock is unknown on at least one side."
    changed = rows.filter(pl.col("base_problem_sha256") != pl.col("new_problem_sha256")).height
    if changed:
        yield f"{_rows(changed)} compared although the problem's content changed; see the column differs."


def _rows(number: int) -> str:
    return "1 row is" if number == 1 else f"{number} rows are"
