"""A/B comparisons of two groups of kernels, such as two methods or prompts, problem by problem.

Each problem is its own control. On each, both groups have as much as the one that has less: samples, and where costs
are known US dollars and tokens, for which kernels are bought by round, then by sample.
Whether a group solves more problems is tested by McNemar's test in its exact form (*Note on the sampling error of the
difference between correlated proportions or percentages*, Psychometrika 12, 1947): only problems that one group solves
alone count, and each group is as likely to be that one. Speed is compared over problems that both solve.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any, Final

import polars as pl

from kernel_matrix.analysis.generated_kernels import ANSWERS, PLACE, SPENT, generated_kernels
from kernel_matrix.analysis.overall import sign_test
from kernel_matrix.analysis.questions import Answer, QuestionOptions
from kernel_matrix.analysis.slices import columns_of
from kernel_matrix.analysis.tables import Tables
from kernel_matrix.errors import UsageError
from kernel_matrix.measure.intervals import log_interval

_COMPARED: Final = ("method", "model", "prompt", "language", "round")
"""Slices whose values are compared."""
_SIDES: Final = ("a", "b")
SAMPLES: Final = "samples"
"""Value of ``equal`` in rows whose groups have the same number of samples."""


def ab(tables: Tables, request: QuestionOptions) -> list[Answer]:
    """Compare each two values of a slice, by default of ``method``, over the problems that both have.

    Further slices, such as ``category``, are compared apart.

    Raises:
        NothingSelectedError: No cell counts.
        UsageError: Two slices are named whose values could be compared.
    """
    compared = [name for name in request.by if name in _COMPARED] or ["method"]
    if len(compared) > 1:
        raise UsageError(f"ab compares {compared[0]} or {compared[1]}, not both", next_step="Leave one of them out.")
    within = [name for name in request.by if name not in _COMPARED]
    *slices, column = columns_of([*within, *compared])
    kernels = generated_kernels(tables, [*slices, column]).drop_nulls(column)
    parts = sorted(kernels.partition_by(slices, as_dict=True).items(), key=str) if slices else [((), kernels)]
    values = kernels[column].unique().sort()
    rows = [
        {**dict(zip(within, map(str, part), strict=True)), "a": str(one), "b": str(other), **compared}
        for part, of_part in parts
        for one, other in combinations(values, 2)
        if (sides := [of_part.filter(pl.col(column) == it) for it in (one, other)])
        and not any(side.is_empty() for side in sides)
        for compared in _compared_at_equal(*sides)
    ]
    return [
        Answer(
            name="ab",
            title=f"Two values of {compared[0]}, problem by problem",
            table=pl.DataFrame(rows, schema={**dict.fromkeys(within, pl.String()), **_SCHEMA}),
            meanings=_MEANINGS,
            notes=list(_notes(len(values), compared[0], len(rows))),
        )
    ]


def _compared_at_equal(a: pl.DataFrame, b: pl.DataFrame) -> Iterator[dict[str, Any]]:
    """Compare two groups for equal samples, and for each unit in which costs are known."""
    numbers = pl.col("sample").rank("dense").over(PLACE).cast(pl.Float64)
    yield {"equal": SAMPLES, **_compared(*(side.with_columns(bought=numbers) for side in (a, b)))}
    for unit in SPENT:
        found = _compared(*(_bought(side, unit) for side in (a, b)))
        if found["problems"]:
            yield {"equal": unit, **found}


def _bought(side: pl.DataFrame, unit: str) -> pl.DataFrame:
    """Add what was spent up to each kernel, in the places where that is known of all of them."""
    known = pl.col(unit).is_not_null().all() & (pl.col(unit).sum() > 0)
    return side.filter(known.over(PLACE)).with_columns(bought=pl.col(unit).cum_sum().over(PLACE))


def _compared(a: pl.DataFrame, b: pl.DataFrame) -> dict[str, Any]:
    """Compare two groups over the places that both have, with kernels ``bought`` for as much as both have spent."""
    spent = [side.group_by(PLACE).agg(pl.col("bought").max()) for side in (a, b)]
    places = spent[0].join(spent[1], on=PLACE, nulls_equal=True)
    places = places.select(*PLACE, least=pl.min_horizontal("bought", "bought_right"))
    one, other = (_best(side, places) for side in (a, b))
    problems = (
        one.join(other, on=PLACE, suffix="_b", nulls_equal=True)
        .group_by("problem")
        .agg(pl.col("solved", "solved_b").all(), (pl.col("log") - pl.col("log_b")).mean().alias("log"))
        .sort("problem")
    )
    solved, solved_b = pl.col("solved"), pl.col("solved_b")
    only = [int(problems.select(holds.sum()).item()) for holds in (solved & ~solved_b, solved_b & ~solved)]
    logs = problems.filter(solved & solved_b)["log"].drop_nulls()
    return {
        "problems": problems.height,
        **{f"solved_{side}": problems[name].mean() for side, name in zip(_SIDES, ("solved", "solved_b"), strict=True)},
        "only_a": only[0],
        "only_b": only[1],
        "solved_p": sign_test(*only),
        **_speed(logs.to_list(), logs.exp().to_list()),
    }


def _best(side: pl.DataFrame, places: pl.DataFrame) -> pl.DataFrame:
    """Make one row per place: whether one of its first kernels is correct, and the logarithm of the best speed-up."""
    return (
        side.join(places, on=PLACE, nulls_equal=True)
        .filter(pl.col("bought") <= pl.col("least"))
        .group_by(PLACE)
        .agg(pl.col("passed").any().alias("solved"), pl.col("ratio").max().log().alias("log"))
    )


def _speed(logs: Sequence[float], ratios: Sequence[float]) -> dict[str, Any]:
    if not logs:
        return {"both": 0}
    interval = log_interval(ratios)
    several = len(logs) > 1
    return {
        "both": len(logs),
        "ratio": interval.estimate,
        "ratio_low": interval.low if several else None,
        "ratio_high": interval.high if several else None,
        "speed_p": sign_test(sum(log > 0 for log in logs), sum(log < 0 for log in logs)),
    }


def _notes(values: int, name: str, rows: int) -> Iterator[str]:
    yield ANSWERS
    if values < 2:
        yield f"The tables hold fewer than two values of {name}: there is nothing to compare."
    if rows > 1:
        yield f"Each p holds by itself: of {rows} comparisons of equal groups, {rows * 0.05:.2g} have one below 5 %."


_SCHEMA: Final[dict[str, pl.DataType]] = {
    **dict.fromkeys((*_SIDES, "equal"), pl.String()),
    "problems": pl.Int64(),
    **dict.fromkeys(("solved_a", "solved_b"), pl.Float64()),
    **dict.fromkeys(("only_a", "only_b"), pl.Int64()),
    "solved_p": pl.Float64(),
    "both": pl.Int64(),
    **dict.fromkeys(("ratio", "ratio_low", "ratio_high", "speed_p"), pl.Float64()),
}
_MEANINGS: Final = {
    "a": "the one value",
    "b": "the other value",
    "equal": "what both have the same of, on each problem as much as the one that has less: `samples`, or `usd` or"
    " `tokens`, for which kernels are bought by round, then by sample",
    "problems": "problems that both have kernels for, in the same dtype, GPU and toolchain; of known cost for `usd` and"
    " `tokens`",
    "solved_a": "share of them that `a` solves: one of these kernels is correct; in every dtype, GPU and toolchain that"
    " both have",
    "solved_b": "the same for `b`",
    "only_a": "problems that `a` solves and `b` does not",
    "only_b": "problems that `b` solves and `a` does not",
    "solved_p": "p of no difference, two-sided: McNemar's exact test on `only_a` and `only_b` (Psychometrika 12, 1947)",
    "both": "problems that both solve, with a speed-up",
    "ratio": "geometric mean over them of the best speed-up of `a` ÷ that of `b`, each among these kernels",
    "ratio_low": "lower end of its 95 % interval, from the differences between problems; one problem has none",
    "ratio_high": "upper end",
    "speed_p": "p of no difference, two-sided: sign test over these problems",
}
