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


PATHS = {
    "refine": [[(0, 0, 1.0, 0), (1, 0, 2.0, 1), (0, 1, 3.0, 0)], [(0, 0, 5.0, 0)], [(0, 0, 1.0, 2), (1, 0, 1.0, 3)]],
    "repeated": [[(0, 0, 1.0, 0), (0, 1, 1.0, 1), (0, 2, 1.0, 0)], [(0, 0, 0.5, 0.5)], [(0, 0, 9.0, 0)]],
}
"""Method → problem → attempts: round, sample, US dollars, and the speed-up, 0 for a failure."""
PROBLEMS = {"softmax": "Reduce", "argmax": "Reduce", "gemm": "Matmul"}


def attempts():
    for method, of_problems in PATHS.items():
        for (problem, category), made in zip(PROBLEMS.items(), of_problems, strict=True):
            for round_, sample, usd, speedup in made:
                name = f"{problem}/{method}-{round_}-{sample}"
                place = {"problem": problem, "category": category, "origin_method": method, "origin_prompt": "short"}
                timed = {"candidate_median_ns": 200.0 / speedup} if speedup else {}
                yield kernel(
                    name, solved=speedup > 0, usd=usd, origin_round=round_, origin_sample=sample, **place, **timed
                )


def share_by_hand(method, budget, *, faster_than=0.0, category="", last_round=9):
    """Buy the attempts at each problem one by one, until the next is too dear."""
    solved = []
    for (_, of), made in zip(PROBLEMS.items(), PATHS[method], strict=True):
        tried = sorted(one for one in made if one[0] <= last_round)
        if category in ("", of):
            left, found = budget, False
            for _round, _sample, usd, speedup in tried:
                left -= usd
                found |= left >= 0 and speedup > faster_than
            solved.append(found)
    return sum(solved) / len(solved)


@pytest.mark.parametrize("by", [("method",), ("method", "category"), ("method", "prompt"), ("method", "language")])
def test_shares_by_slice_are_those_of_a_purchase_by_hand(by):
    rows = answer(*attempts(), by=by).table.filter(unit="usd").to_dicts()
    assert {row["budget"] for row in rows} >= {0.5, 1.0, 2.0, 5.0, 10.0}
    for row in rows:
        of = {"method": row["method"], "budget": row["budget"], "category": row.get("category", "")}
        assert row["correct"] == share_by_hand(**of), row
        assert row["fast_1"] == share_by_hand(**of, faster_than=1.0), row


def test_slice_by_round_has_all_rounds_up_to_it():
    table = answer(*attempts(), by=("method", "round")).table.filter(unit="usd")
    reached = table.filter(budget=10.0).select("method", "round", "tasks", "correct", "ended").rows()
    assert reached == [("refine", 0, 3, 1 / 3, 2 / 3), ("refine", 1, 3, 2 / 3, 1 / 3), ("repeated", 0, 3, 2 / 3, 1 / 3)]
    for row in table.to_dicts():
        assert row["correct"] == share_by_hand(row["method"], row["budget"], last_round=row["round"]), row
