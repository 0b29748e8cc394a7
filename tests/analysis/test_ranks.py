"""Ranks: tau against scipy, ties by noise or margin, the ceiling, and regret with its noise."""

import math

import numpy as np
import pytest
from scipy.stats import kendalltau, t

from kernel_matrix.analysis.questions import QuestionOptions, ask
from kernel_matrix.analysis.ranks import MOST_RIVALS, NoiseDraws
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


@pytest.mark.parametrize(("apart", "tied"), [(0.98, 1), (1.02, 0)])
def test_pairs_within_the_noise_are_tied(apart, tied):
    spread = 0.01
    reach = t.ppf(0.975, 4) * spread * math.sqrt(2 / 3)
    rows = []
    for gpu in ("x", "y"):
        for name, middle in {"a": 0.0, "b": apart * reach}.items():
            times = [100 * math.exp(middle + error) for error in (-spread, 0, spread)]
            rows += over_sessions([(1, time) for time in times], gpu=gpu, candidate=name)
    order, _ = both(rows)
    assert (order["tied"], order["tied_other"], order["apart"]) == (tied, tied, 1 - tied)
    assert (order["tau"], order["tau_apart"]) == (pytest.approx(1.0), None if tied else pytest.approx(1.0))


def drawn(truth, noise, sessions=3, seed=1):
    """Rows of two GPUs; ``truth`` has the shape (problems, candidates)."""
    dice = np.random.default_rng(seed)
    for gpu in ("x", "y"):
        for problem, levels in enumerate(truth):
            for name, level in enumerate(levels):
                times = 100 * np.exp(level + dice.normal(0, noise, sessions))
                about = {"gpu": gpu, "problem": f"p{problem}", "candidate": f"{name}"}
                yield from over_sessions([(200, time) for time in times], **about)


@pytest.mark.parametrize(("sessions", "noise"), [(2, 0.005), (3, 0.03), (5, 0.01)])
def test_identical_candidates_have_no_ceiling(sessions, noise):
    found = answers(drawn(np.zeros((8, 20)), noise, sessions))
    (order,) = found["ranks"].table.to_dicts()
    assert [order[name] or 0.0 for name in ("ceiling", "ceiling_other")] == pytest.approx([0.0, 0.0], abs=0.1)
    assert "On x the candidates do not differ by more than noise" in told(found["ranks"])
    for row in found["regret"].table.to_dicts():
        assert row["median"] <= row["median_noise"]
        assert row["worst"] <= row["worst_noise"]


@pytest.mark.parametrize("step", [0.005, 0.01, 0.1])
def test_equal_orders_have_a_tau_near_the_ceiling(step):
    dice = np.random.default_rng(3)
    truth = step * dice.permuted(np.tile(np.arange(10), (30, 1)), axis=1)
    order, regret = both(drawn(truth, 0.02))
    assert order["tau"] == pytest.approx(order["ceiling_of_both"], abs=0.1)
    assert order["ceiling"] == pytest.approx(order["ceiling_other"], abs=0.1)
    assert order["top1"] == pytest.approx(order["top1_ceiling"], abs=0.2)
    assert regret["x", "y"]["median"] <= regret["x", "y"]["median_noise"]


def test_unequal_orders_have_a_tau_below_the_ceiling():
    dice = np.random.default_rng(4)
    one, two = (list(drawn(dice.normal(0, 0.3, (20, 5)), 0.01, seed=seed)) for seed in (1, 2))
    order, regret = both([*(row for row in one if row["gpu"] == "x"), *(row for row in two if row["gpu"] == "y")])
    assert order["tau"] < 0.3
    assert order["ceiling_of_both"] > 0.9
    assert regret["x", "y"]["median"] > regret["x", "y"]["median_noise"]


def test_ceiling_without_noise_is_one_of_one_session_unknown():
    steady = [
        row
        for gpu in ("x", "y")
        for name, time in {"a": 100, "b": 200}.items()
        for row in over_sessions([(1, time)] * 4, gpu=gpu, candidate=name)
    ]
    order, regret = both(steady)
    assert (order["ceiling"], order["top1_ceiling"]) == (pytest.approx(1.0, abs=1e-4), pytest.approx(1.0))
    assert (regret["x", "y"]["worst"], regret["x", "y"]["worst_noise"]) == (pytest.approx(1.0), pytest.approx(1.0))
    single = answers([*timed("x", {"a": 1, "b": 2}), *timed("y", {"a": 1, "b": 2})])
    (row,) = single["ranks"].table.select("ceiling", "ceiling_other", "top1_ceiling").rows()
    assert row == (None, None, None)
    assert single["regret"].table["worst_noise"].to_list() == [None, None]
    assert "4 times have an unknown noise" in told(single["ranks"])


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


@pytest.mark.parametrize("degrees", [3.0, 30.0, np.inf])
def test_noise_lines_are_quantiles_of_students_t(degrees):
    error = np.full(2, 0.001)
    drawn = NoiseDraws(2).lines(error, np.full(2, degrees))
    # The worst of two is below a line with the chance that both are.
    wanted = math.exp(0.001 * t.ppf(0.99**0.5, min(degrees, 1e6)))
    assert math.log(drawn[-1]) == pytest.approx(math.log(wanted), rel=0.25)
    assert drawn[0] < drawn[1] < drawn[2]
