"""Two groups of kernels, paired by problem."""

import polars as pl
import pytest
from scipy import stats

from kernel_matrix.analysis.paired_groups import ab
from kernel_matrix.analysis.questions import QuestionOptions
from kernel_matrix.errors import UsageError
from tests.analysis.made import cell, failed, tables


def kernel(problem, method, *, speedup=1.0, sample=0, **columns):
    """One row of a kernel; ``speedup=0``: it failed."""
    known = {"problem": problem, "candidate": f"{problem}/{method}{sample}", "origin_sample": sample, **columns}
    known.setdefault("origin_method", method)
    return cell(baseline_median_ns=100.0 * speedup, candidate_median_ns=100.0, **known) if speedup else failed(**known)


def answer(*rows, by=()):
    (found,) = ab(tables(rows), QuestionOptions(by=by))
    return found


def only(*rows, equal="samples", **options):
    found = answer(*rows, **options).table.filter(pl.col("equal") == equal)
    assert found.height == 1, found
    return found.row(0, named=True)


def test_problems_that_one_solves_alone_are_counted_and_tested():
    rows = [kernel(f"p{n}", "x", speedup=n < 9) for n in range(12)]
    rows += [kernel(f"p{n}", "y", speedup=n in (0, 11)) for n in range(12)]
    found = only(*rows)
    assert (found["a"], found["b"], found["problems"], found["only_a"], found["only_b"]) == ("x", "y", 12, 8, 1)
    assert (found["solved_a"], found["solved_b"]) == (9 / 12, 2 / 12)
    assert found["solved_p"] == pytest.approx(stats.binomtest(1, 9).pvalue)


def test_speed_is_over_problems_that_both_solve():
    faster = [2.0, 2.2, 1.8, 2.1, 1.9]
    rows = [kernel(f"p{n}", "x", speedup=ratio) for n, ratio in enumerate(faster)]
    rows += [kernel(f"p{n}", "y") for n in range(4)] + [kernel("p4", "y", speedup=0), kernel("p9", "y", speedup=9.0)]
    found = only(*rows)
    assert (found["problems"], found["both"]) == (5, 4)
    assert found["ratio"] == pytest.approx(stats.gmean(faster[:4]))
    assert found["ratio_low"] < found["ratio"] < found["ratio_high"]
    assert found["speed_p"] == pytest.approx(2 / 2**4)


def test_both_have_the_same_number_of_samples():
    rows = [kernel("p", "x", speedup=0, sample=1), kernel("p", "x", speedup=3.0, sample=2), kernel("p", "y", sample=5)]
    found = only(*rows)
    assert (found["solved_a"], found["solved_b"]) == (0, 1)
    again = only(*rows, kernel("p", "y", speedup=2.0, sample=6))
    assert (again["solved_a"], again["ratio"]) == (1, pytest.approx(1.5))


def test_rounds_of_one_sample_are_one_sample():
    rounds = [kernel("p", "x", speedup=n == 2, candidate=f"p/x-{n}", origin_round=n) for n in (1, 2)]
    assert only(*rounds, kernel("p", "y"))["solved_a"] == 1


def spent(problem, method, usd, **columns):
    tokens = {"origin_tokens_in": int(usd * 1000), "origin_tokens_out": 0}
    return kernel(problem, method, origin_cost_usd=usd, **tokens, **columns)


def rounds_against_samples(*, dearer=1.0):
    """One sample that is right in its third round, against three samples of which the second is right."""
    rounds = [spent("p", "x", 1.0, speedup=2.0 * (n == 2), candidate=f"p/x-{n}", origin_round=n) for n in range(3)]
    return rounds + [spent("p", "y", dearer, speedup=1.0 * (n == 1), sample=n) for n in range(3)]


def test_rounds_and_samples_are_compared_for_the_same_money():
    rows = rounds_against_samples()
    assert (only(*rows)["solved_a"], only(*rows)["solved_b"]) == (1, 0)  # the first sample of each
    for unit in ("usd", "tokens"):
        found = only(*rows, equal=unit)
        assert (found["solved_a"], found["solved_b"], found["ratio"]) == (1, 1, pytest.approx(2.0))


def test_what_is_dearer_is_had_less_of():
    found = only(*rounds_against_samples(dearer=2.0), equal="usd")  # one of y for three of x
    assert (found["solved_a"], found["solved_b"]) == (1, 0)


def test_problems_with_an_unknown_cost_are_left_out_for_money():
    rows = [spent("p", "x", 1.0), spent("p", "y", 1.0), spent("q", "x", 1.0), kernel("q", "y")]
    assert only(*rows)["problems"] == 2
    assert only(*rows, equal="usd")["problems"] == 1
    assert answer(*rows[2:]).table["equal"].to_list() == ["samples"]


def test_problem_is_solved_if_it_is_in_every_place_of_both():
    rows = [kernel("p", "x"), kernel("p", "x", speedup=0, dtype="fp16"), kernel("p", "x", speedup=0, gpu="only x")]
    rows += [kernel("p", "y"), kernel("p", "y", dtype="fp16")]
    assert (only(*rows)["solved_a"], only(*rows)["solved_b"]) == (0, 1)


def test_other_slices_are_compared_apart():
    rows = [kernel(problem, who, category=problem) for problem in ("p", "q") for who in ("x", "y")]
    found = answer(*rows, kernel("r", "x", category="r"), by=("category",)).table
    assert found.select("category", "a", "b", "problems").rows() == [("p", "x", "y", 1), ("q", "x", "y", 1)]


def test_models_are_compared_on_request():
    rows = [kernel("p", "x", origin_model="m1"), kernel("p", "y", origin_model="m2")]
    assert (only(*rows, by=("model",))["a"], only(*rows, by=("model",))["b"]) == ("m1", "m2")


def test_prompts_are_compared_on_request():
    rows = [kernel(f"p{n}", "x", origin_prompt="short", candidate=f"p{n}/short") for n in range(3)]
    rows += [kernel(f"p{n}", "x", speedup=n == 0, origin_prompt="long", candidate=f"p{n}/long") for n in range(3)]
    found = only(*rows, by=("prompt",))
    assert (found["a"], found["b"], found["only_a"], found["only_b"]) == ("long", "short", 0, 2)


def test_samples_of_two_models_are_not_one_sample():
    rows = [kernel("p", "x", speedup=name == "m2", origin_model=name, candidate=f"p/{name}") for name in ("m1", "m2")]
    assert only(*rows, kernel("p", "y"), kernel("p", "y", sample=1))["solved_a"] == 1
    assert only(*rows, kernel("p", "y"))["solved_a"] == 0


def test_groups_without_common_problems_say_nothing():
    found = only(kernel("p", "x"), kernel("q", "y"))
    assert (found["problems"], found["solved_a"], found["solved_p"], found["both"]) == (0, None, 1, 0)


def test_one_group_alone_is_a_note():
    found = answer(kernel("p", "x"))
    assert (found.table.height, "fewer than two values of method" in found.notes[1]) == (0, True)


def test_two_compared_slices_are_a_mistake():
    with pytest.raises(UsageError, match="method or model, not both"):
        answer(kernel("p", "x"), by=("method", "model"))
