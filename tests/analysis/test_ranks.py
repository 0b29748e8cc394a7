"""Ranks: tau against scipy, ties by intervals or margin, the ceiling, and regret."""

import math

import numpy as np
import pytest
from scipy.stats import kendalltau, t

from kernel_matrix.analysis.questions import QuestionOptions, ask
from kernel_matrix.analysis.ranks import MOST_RIVALS
from kernel_matrix.errors import NothingSelectedError, UsageError
from tests.analysis.made import cell, over_sessions, tables
from tests.analysis.test_standings import FAILED, LOST


def timed(gpu, times, problem="p", **columns):
    """One cell of one session per candidate; None: it fails."""
    for name, time in times.items():
        about = {"gpu": gpu, "problem": problem, "candidate": f"{problem}/{name}", **columns}
        yield cell(**about, **FAILED) if time is None else cell(**about, candidate_median_ns=time)


def answers(rows, **request):
    return {answer.name: answer for answer in ask("ranks", tables(rows), QuestionOptions(**request))}


def both(rows, **request):
    found = answers(rows, **request)
    (order,) = found["ranks"].table.to_dicts()
    return order, {(row["winner_of"], row["run_on"]): row for row in found["regret"].table.to_dicts()}


def told(answer):
    return "\n".join(answer.notes)


@pytest.mark.parametrize("seed", range(5))
def test_tau_is_that_of_scipy_with_ties_within_the_margin(seed):
    rng = np.random.default_rng(seed)
    rows, taus = [], []
    for number in range(8):
        one, two = (100.0 * 1.1 ** rng.integers(0, 5, 6 + number) for _ in range(2))
        rows += timed("x", {str(place): time for place, time in enumerate(one)}, f"p{number}")
        rows += timed("y", {str(place): time for place, time in enumerate(two)}, f"p{number}")
        taus.append(kendalltau(one, two).statistic)
    order, _ = both(rows)
    assert order["tau"] == pytest.approx(np.nanmean(taus))
    assert (order["groups"], order["with_tau"]) == (8, int(np.sum(~np.isnan(taus))))
    assert order["pairs"] == sum(math.comb(6 + number, 2) for number in range(8))


def test_differences_up_to_the_margin_are_ties():
    rows = [*timed("x", {"a": 100, "b": 101.9, "c": 110}), *timed("y", {"a": 101.9, "b": 100, "c": 110})]
    order, _ = both(rows)
    assert (order["tau"], order["tied"], order["tied_other"]) == (pytest.approx(1.0), 1, 1)
    strict, _ = both(rows, margin=0.01)
    assert strict["tau"] == pytest.approx(kendalltau([1, 2, 3], [2, 1, 3]).statistic)


def test_overlapping_intervals_are_ties():
    rows = []
    for gpu in ("x", "y"):
        for name, times in {"a": (100, 130, 115), "b": (120, 125, 130), "c": (900, 905, 910)}.items():
            rows += over_sessions([(1, time) for time in times], gpu=gpu, candidate=name)
    order, _ = both(rows)
    assert (order["pairs"], order["tied"], order["tau"]) == (3, 1, pytest.approx(1.0))
    precise = []
    for gpu in ("x", "y"):
        for name, time in {"a": 100, "b": 101, "c": 900}.items():  # one per cent apart, yet never overlapping
            precise += over_sessions([(1, time), (1, time + 0.01)], gpu=gpu, candidate=name)
    order, _ = both(precise)
    assert order["tied"] == 0


@pytest.mark.parametrize(("apart", "tied"), [(0.9, 1), (1.1, 0)])
def test_intervals_overlap_up_to_the_sum_of_both_widths(apart, tied):
    spread = 0.01
    reach = t.ppf(0.975, 2) * spread / math.sqrt(3)
    rows = []
    for gpu in ("x", "y"):
        for name, middle in {"a": 0.0, "b": apart * 2 * reach}.items():
            times = [100 * math.exp(middle + error) for error in (-spread, 0, spread)]
            rows += over_sessions([(1, time) for time in times], gpu=gpu, candidate=name)
    order, _ = both(rows)
    assert order["tied"] == tied


def test_ranks_of_equal_truth_reach_the_ceiling():
    rng = np.random.default_rng(1)
    rows = []
    for problem in range(100):
        truth = rng.normal(0, 0.05, 5)
        for gpu in ("x", "y"):
            for name, level in enumerate(truth):
                times = 100 * np.exp(level + rng.normal(0, 0.03, 8))
                rows += over_sessions(
                    [(1, time) for time in times], gpu=gpu, problem=f"p{problem}", candidate=f"{name}"
                )
    order, _ = both(rows)
    assert order["ceiling"] < 0.95
    assert order["ceiling"] == pytest.approx(order["ceiling_other"], abs=0.1)
    assert order["tau"] >= order["ceiling"] - 0.02
    assert order["top1"] >= order["top1_ceiling"] - 0.05


def test_ceiling_without_noise_is_one_of_one_session_unknown():
    steady = [
        row
        for gpu in ("x", "y")
        for name, time in {"a": 100, "b": 200}.items()
        for row in over_sessions([(1, time)] * 4, gpu=gpu, candidate=name)
    ]
    order, _ = both(steady)
    assert (order["ceiling"], order["top1_ceiling"]) == (pytest.approx(1.0), 1.0)
    single = answers([*timed("x", {"a": 1, "b": 2}), *timed("y", {"a": 1, "b": 2})])["ranks"]
    assert single.table.select("ceiling", "ceiling_other", "top1_ceiling").row(0) == (None, None, None)
    assert "4 cells have one session" in told(single)


def test_regret_of_winner_names_its_worst_problem():
    rows = [
        *timed("x", {"a": 10, "b": 20}, "same"),
        *timed("y", {"a": 30, "b": 60}, "same"),
        *timed("x", {"a": 10, "b": 20}, "других"),
        *timed("y", {"a": 60, "b": 20}, "других"),
        *timed("x", {"a": 10, "b": 20}, "fails"),
        *timed("y", {"a": None, "b": 20}, "fails"),
    ]
    order, regret = both(rows)
    there, back = regret["x", "y"], regret["y", "x"]
    assert (there["groups"], there["fails"], there["worst"]) == (2, 1, pytest.approx(3.0))
    assert (there["median"], there["worst_problem"]) == (pytest.approx(2.0), "других")
    assert there["p95"] == pytest.approx(np.quantile([1, 3], 0.95))
    assert (back["groups"], back["fails"], back["worst"]) == (3, 0, pytest.approx(2.0))
    assert (order["winners"], order["top1"]) == (3, pytest.approx(1 / 3))


def test_a_winner_that_fails_on_one_unit_fails_and_has_no_regret():
    rows = [*timed("x", {"a": 10, "b": 20}), *timed("y", {"a": 10, "b": 20})]
    _, regret = both([*rows, *timed("y", {"a": None}, gpu_uuid="GPU-2")])
    there, back = regret["x", "y"], regret["y", "x"]
    assert (there["groups"], there["fails"], there["worst"]) == (0, 1, None)
    assert (back["groups"], back["fails"], back["worst"]) == (1, 0, pytest.approx(2.0))


def test_a_candidate_without_an_answer_from_both_is_no_winner():
    rows = [*timed("x", {"a": 1, "b": 10, "c": 20}), *timed("y", {"b": 10, "c": 20})]
    rows.append(cell(gpu="y", problem="p", candidate="p/a", **LOST))
    order, regret = both(rows)
    assert (order["pairs"], order["top1"]) == (1, 1.0)
    assert regret["x", "y"]["worst"] == pytest.approx(1.0)


def test_of_many_candidates_some_are_ordered_and_all_may_win():
    count = MOST_RIVALS + 10
    rows = [row for gpu in ("x", "y") for row in timed(gpu, {str(place): 100 * 1.1**place for place in range(count)})]
    found = answers(rows)["ranks"]
    (order,) = found.table.to_dicts()
    assert (order["pairs"], order["tau"], order["top1"]) == (math.comb(MOST_RIVALS, 2), pytest.approx(1.0), 1.0)
    assert f"1 groups have more than {MOST_RIVALS} candidates" in told(found)


def test_toolchains_are_kept_apart_where_a_gpu_has_several():
    rows = []
    for toolchain, times in {"old": {"a": 1, "b": 2}, "new": {"a": 2, "b": 1}}.items():
        rows += [*timed("x", times, toolchain=toolchain), *timed("y", times, toolchain=toolchain)]
    order, _ = both(rows)
    assert (order["groups"], order["tau"]) == (2, pytest.approx(1.0))


def test_slices_have_rows_of_their_own():
    rows = []
    for category, other in {"easy": {"a": 1, "b": 2}, "hard": {"a": 2, "b": 1}}.items():
        rows += timed("x", {"a": 1, "b": 2}, category, category=category)
        rows += timed("y", other, category, category=category)
    table = answers(rows, by=("category",))["ranks"].table
    assert dict(table.select("category", "tau").iter_rows()) == {
        "easy": pytest.approx(1.0),
        "hard": pytest.approx(-1.0),
    }


@pytest.mark.parametrize("name", ["gpu", "candidate", "method", "unit"])
def test_what_cannot_be_sliced_by_is_said(name):
    with pytest.raises(UsageError):
        answers([cell()], by=(name,))


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([cell(gpu="x", candidate_median_ns=1)], "There is only one GPU"),
        ([cell(gpu="x", candidate_median_ns=1), cell(gpu="y", candidate_median_ns=1)], "No problem has two candidates"),
        ([*timed("x", {"a": None, "b": None}), *timed("y", {"a": None, "b": None})], ""),
        ([*timed("x", {"a": math.inf, "b": 0.0}), *timed("y", {"a": 1, "b": 2})], "zero, negative or not finite"),
    ],
)
def test_poor_tables_are_answered(rows, said):
    found = answers(rows)
    assert said in told(found["ranks"])
    for answer in found.values():
        assert set(answer.meanings) <= set(answer.table.columns)
        assert all(
            value is None for row in answer.table.to_dicts() for key, value in row.items() if key in {"tau", "p95"}
        )


def test_gpus_that_are_not_there_are_said():
    with pytest.raises(NothingSelectedError):
        answers([cell()], platforms=("unseen",))
    found = answers([*timed("x", {"a": 1, "b": 2})], platforms=("x", "unseen"))
    assert "No cell ran on unseen" in told(found["ranks"])


def test_cells_without_gpu_are_left_out_and_counted():
    rows = [row for gpu in ("x", "y", None) for row in timed(gpu, {"a": 1.0, "b": 2.0})]
    found = answers(rows)["ranks"]
    assert "2 cells do not name their GPU" in told(found)
    assert found.table.select("gpu", "other").rows() == [("x", "y")]
