"""Shares of solved tasks for the same spending."""

import pytest

from kernel_matrix.analysis.budgets import budgets
from kernel_matrix.analysis.questions import QuestionOptions
from tests.analysis.made import cell, failed, tables

TIMES = {"baseline_median_ns": 200.0}


def kernel(name, *, solved=True, usd=1.0, **columns):
    """One row of a kernel that cost ``usd`` dollars and a thousand tokens per dollar; 2x as fast as the baseline."""
    origin = {"origin_cost_usd": usd, "origin_tokens_in": usd and round(900 * usd)}
    known = {"candidate": name, "origin_method": "rounds", "origin_tokens_out": usd and round(100 * usd), **origin}
    known |= columns
    return cell(**{**TIMES, "candidate_median_ns": 100.0, **known}) if solved else failed(**known)


def answer(*rows, **options):
    (found,) = budgets(tables(rows), QuestionOptions(**options))
    return found


def shares(found, unit, column="correct"):
    return dict(found.table.filter(unit=unit).select("budget", column).rows())


def test_task_is_solved_once_the_spending_reaches_its_first_correct_kernel():
    rows = [kernel("a", solved=False, origin_round=1), kernel("b", origin_round=2), kernel("c", origin_round=3)]
    found = answer(*rows[::-1])
    assert shares(found, "usd") == {0.5: 0, 1.0: 0, 2.0: 1, 5.0: 1}
    assert shares(found, "tokens") == {500: 0, 1000: 0, 2000: 1, 5000: 1}


def test_a_correct_kernel_that_is_slow_is_not_fast():
    found = answer(kernel("a", candidate_median_ns=300.0))
    assert set(shares(found, "usd").values()) == {0, 1}
    assert set(shares(found, "usd", "fast_1").values()) == {0}


def test_methods_are_compared_at_the_same_budgets():
    one = [kernel(f"a{n}", solved=n == 3, origin_sample=n, origin_method="samples") for n in range(4)]
    other = [kernel("b", solved=False, usd=2.0)]
    found = answer(*one, *other).table.filter(unit="usd", budget=5.0)
    assert found.select("method", "tasks", "correct", "ended").rows() == [("rounds", 1, 0, 1), ("samples", 1, 1, 0)]


def test_samples_count_in_the_order_of_their_numbers():
    rows = [kernel("late", origin_sample=10), kernel("early", solved=False, origin_sample=9)]
    assert shares(answer(*rows), "usd") == {0.2: 0, 0.5: 0, 1.0: 0, 2.0: 1}


def test_rounds_count_before_further_rounds_of_other_samples():
    place = [(1, 1), (1, 2), (2, 1)]
    rows = [kernel(f"{s}-{r}", solved=s == 2, origin_sample=s, origin_round=r) for s, r in place]
    assert shares(answer(*rows), "usd")[2.0] == 1


def test_tasks_of_unknown_cost_are_left_out_and_counted():
    found = answer(kernel("a", usd=None), kernel("b"), kernel("c", problem="relu"))
    assert set(found.table["tasks"]) == {1}
    assert "1 tasks have kernels that do not state their US dollars" in found.notes[1]


@pytest.mark.parametrize("by", [("category",), ("method", "language")])
def test_slices_are_the_rows(by):
    assert set(by) < set(answer(kernel("a"), by=by).table.columns)


def test_tables_without_costs_have_an_empty_answer():
    assert answer(cell(**TIMES, candidate_median_ns=100.0)).table.is_empty()
