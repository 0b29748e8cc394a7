"""Section about generated candidates: what is solved for a budget, by which round, and which method is better."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from kernel_matrix.analysis.generated_kernels import SPENT
from kernel_matrix.analysis.tables import Tables
from kernel_matrix.report.budget_plot import BudgetLine, budget_plot
from kernel_matrix.report.line_plots import MOST_LINES
from kernel_matrix.report.markup import Html, element, joined, plain_table, scrolled
from kernel_matrix.report.number_format import DASH, number, rate, times
from kernel_matrix.report.question_pages import QuestionPage, answer_question

_MOST_ROWS: Final = 40

_UNKNOWN: Final = "unknown method"
_FAST: Final = (1, 2)
"""The p of the columns of ``fast_p``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundsAndMoney:
    """Tables of the section; those without rows are not shown."""

    budgets: pl.DataFrame
    """Answer to ``budgets``: one row per unit, budget and method."""
    rounds: pl.DataFrame
    """Answer ``rounds`` of ``scores``, by method."""
    ab: pl.DataFrame
    """Answer to ``ab``: one row per two methods."""


def find_rounds_and_money(tables: Tables, questions: Sequence[QuestionPage]) -> RoundsAndMoney | None:
    """Find the tables; None if no candidate has a round or a cost.

    Args:
        tables: The tables of the report.
        questions: Answers for all candidates together.
    """
    found = _tables(questions)
    if all(found.get(name, pl.DataFrame()).is_empty() for name in ("budgets", "rounds")):
        return None
    rounds = _tables([answer_question("scores", tables, "method")]).get("rounds")
    nothing = pl.DataFrame()
    return RoundsAndMoney(
        budgets=found.get("budgets", nothing),
        rounds=nothing if rounds is None else rounds,
        ab=found.get("ab", nothing),
    )


def _tables(questions: Sequence[QuestionPage]) -> dict[str, pl.DataFrame]:
    return {answer.name: answer.table for page in questions for answer in page.answers}


def rounds_and_money(found: RoundsAndMoney) -> Html:
    """Write a plot per unit of spending, the best by round, and the comparisons of methods."""
    parts = []
    if found.budgets.height:
        parts.append(element("div", *_plots(found.budgets), class_="pair"))
        parts.append(element("p", _budget_note(found.budgets), class_="note"))
    if found.rounds.height:
        parts.append(_rounds(found.rounds))
    if found.ab.height:
        parts.append(_comparisons(found.ab))
    return joined(*parts)


def _plots(budgets: pl.DataFrame) -> Iterator[Html]:
    for unit, words in SPENT.items():
        lines = [
            BudgetLine(
                label=of_method["method"][0] or _UNKNOWN,
                budgets=of_method["budget"].to_list(),
                shares=of_method["correct"].to_list(),
                ended=of_method["ended"].to_list(),
            )
            for of_method in budgets.filter(unit=unit).partition_by("method", maintain_order=True)
        ]
        if lines:
            yield budget_plot(f"Tasks solved for so many {words} each", lines[:MOST_LINES])


def _budget_note(budgets: pl.DataFrame) -> str:
    more = budgets["method"].n_unique() - MOST_LINES
    left_out = f" {number(more, 'more method')} there." if more > 0 else ""
    return (
        "Share of tasks with a correct candidate, candidates bought by round, then by sample; answers without code cost"
        f" too. Speed, and tasks of unknown cost: the page Answers, budgets.{left_out}"
    )


def _rounds(rounds: pl.DataFrame) -> Html:
    head = ("method", "up to round", "samples", "correct", *(f"fast {p}×" for p in _FAST))
    body = [
        (
            row["method"] or _UNKNOWN,
            str(row["round"]),
            f"{row['attempts']:,}",
            rate(row["fast_0"]),
            *(rate(row[f"fast_{p}"]) for p in _FAST),
        )
        for row in rounds.head(_MOST_ROWS).iter_rows(named=True)
    ]
    note = (
        "Share of samples whose best round so far is correct, and more than p times as fast as the baseline: fast_p@N."
        + _more(rounds.height, "`kernel-matrix analyze scores --by method`")
    )
    return _titled("Best by round", head, body, note, texts=head[:1])


def _comparisons(ab: pl.DataFrame) -> Html:
    solved = ("problems", "a solves", "b solves", "only a", "only b", "p (solves)")
    head = ("a", "b", "with equal", *solved, "speed a ÷ b", "95 % interval", "p (speed)")
    body = [_compared(row) for row in ab.head(_MOST_ROWS).iter_rows(named=True)]
    note = (
        "Each problem is its own control, on which a and b have equally many samples, or, where costs are known, have"
        " spent as much. p (solves): McNemar's exact test. p (speed), of problems that both solve: sign"
        " test." + _more(ab.height, "the page Answers, ab")
    )
    return _titled("Method against method", head, body, note, texts=head[:3])


def _compared(row: Mapping[str, Any]) -> tuple[str, ...]:
    interval = DASH if row["ratio_low"] is None else f"{row['ratio_low']:.2f} to {row['ratio_high']:.2f}"
    return (
        *(
            row["a"],
            row["b"],
            SPENT.get(row["equal"], row["equal"]),
            f"{row['problems']:,}",
            rate(row["solved_a"]),
            rate(row["solved_b"]),
        ),
        *(f"{row['only_a']:,}", f"{row['only_b']:,}", _chance(row["solved_p"])),
        *(times(row["ratio"]), interval, _chance(row["speed_p"])),
    )


def _chance(p: float | None) -> str:
    return DASH if p is None else f"{p:.2g}" if p >= 0.001 else "< 0.001"


def _more(rows: int, where: str) -> str:
    return f" {number(rows - _MOST_ROWS, 'more row')}: {where}." if rows > _MOST_ROWS else ""


def _titled(title: str, head: Sequence[str], body: Sequence[Sequence[str]], note: str, *, texts: Sequence[str]) -> Html:
    table = scrolled(title, plain_table(head, body, texts=texts))
    return joined(element("h3", title), table, element("p", note, class_="note"))
