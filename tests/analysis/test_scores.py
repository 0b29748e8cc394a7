"""Rates, fast_p, pass@k and their denominators."""

import random
from dataclasses import replace
from itertools import combinations, product

import numpy as np
import polars as pl
import pytest
from scipy.stats import gmean, t

from kernel_matrix.analysis.questions import QuestionOptions, ask
from kernel_matrix.analysis.scores import at_least_one
from kernel_matrix.errors import NothingSelectedError, UsageError
from tests.analysis.made import cell, failed, over_sessions, tables

WRONG = {"status": "incorrect_values", "fault": "candidate", "stage": "verify"}


def timed(speedup, **columns):
    """A cell that passed, with one session."""
    return cell(baseline_median_ns=100.0 * speedup, candidate_median_ns=100.0, **{"verdict": None, **columns})


def told(rows, **request):
    """Answers by name."""
    return {answer.name: answer for answer in ask("scores", tables(rows), QuestionOptions(**request))}


def only(rows, **request):
    (row,) = told(rows, **request)["scores"].table.to_dicts()
    return row


def problems(outcomes, **columns):
    """One cell per outcome, each of another problem: a speed-up, or None for a wrong result."""
    for number, speedup in enumerate(outcomes):
        facts = {"problem": f"p{number}", "candidate": f"p{number}/one", **columns}
        yield cell(**facts, **WRONG) if speedup is None else timed(speedup, **facts)


def test_the_threshold_is_strict_and_all_that_counts_is_below():
    row = only(problems([0.5, 1.0, 1.5, 1.6, 3.0, None, None, None]))
    assert [row[f"fast_{p}"] for p in ("0", "1", "1.5", "2")] == [5 / 8, 3 / 8, 2 / 8, 1 / 8]
    assert row["fast_0"] == row["correct_rate"]
    assert (row["compile_rate"], row["counted"], row["timed"]) == (1.0, 8, 5)
    assert row["speedup"] == pytest.approx(gmean([0.5, 1.0, 1.5, 1.6, 3.0]))


@pytest.mark.parametrize("speedup", [1.1, 1.3, 1.5, 1.7, 2.3])
def test_a_speed_up_that_is_the_threshold_is_not_above_it(speedup):
    assert only(problems([speedup]), thresholds=(speedup,))[f"fast_{speedup:g}"] == 0


def test_cell_passes_with_all_workloads_and_has_one_speedup():
    rows = [
        *(timed(s, workload=name) for name, s in (("small", 4.0), ("large", 1.0))),
        *(cell(candidate="softmax/b", workload=name, **WRONG) for name in ("small", "large")),
    ]
    row = only(rows, thresholds=(1.9, 2.1))
    assert (row["cells"], row["correct_rate"], row["timed"]) == (2, 0.5, 2)
    assert (row["fast_1.9"], row["fast_2.1"], row["speedup"]) == (0.5, 0.0, pytest.approx(2.0))
    by_workload = told(rows, by=("workload",), thresholds=(2.1,))["scores"].table
    assert by_workload.select("workload", "cells", "fast_2.1").rows() == [("large", 2, 0.0), ("small", 2, 0.5)]


def test_what_is_nobodys_fault_is_counted_and_in_no_denominator():
    rows = [
        *problems([2.0, None]),
        cell(candidate="a", status="infra_error", fault="infra"),
        cell(candidate="b", status="invalid_problem", fault="problem"),
        cell(candidate="c", status="unsupported", fault="unsupported"),
        cell(candidate="d", status="compiled", fault="none"),
        cell(candidate="e", status="compile_error", fault="candidate"),
    ]
    row = only(rows)
    assert [row[name] for name in ("infra", "invalid_problem", "unsupported", "only_compiled")] == [1, 1, 1, 1]
    assert (row["counted"], row["cells"]) == (3, 7)
    assert (row["correct_rate"], row["compile_rate"]) == (pytest.approx(1 / 3), pytest.approx(2 / 3))
    assert any(note.startswith("4 of 7 cells do not count") for note in told(rows)["scores"].notes)


def test_where_nothing_counts_rates_are_unknown():
    rows = [cell(status="infra_error", fault="infra", candidate="ядро/α")]
    row = only(rows, by=("candidate",))
    assert [row[name] for name in ("correct_rate", "compile_rate", "fast_0", "fast_1", "speedup")] == [None] * 5
    assert row["candidate"] == "ядро/α"
    assert "No cell counts: every rate is unknown, not 0." in told(rows)["scores"].notes
    assert told(rows)["draws"].table.is_empty()


def test_times_that_are_no_times_make_no_speed_up():
    rows = [
        timed(2.0, problem="a"),
        cell(problem="b", baseline_median_ns=100.0, candidate_median_ns=0.0, speedup=float("inf")),
        cell(problem="c", baseline_median_ns=0.0, candidate_median_ns=100.0, speedup=0.0),
        cell(problem="d"),
    ]
    row = only(rows)
    assert (row["timed"], row["speedup"], row["correct_rate"], row["fast_1"]) == (1, pytest.approx(2.0), 1.0, 0.25)
    assert any(
        note.startswith("3 cells passed without a positive, finite speed-up") for note in told(rows)["scores"].notes
    )
    assert only([cell()])["fast_1"] is None
    assert only(problems([None]))["fast_1"] == 0


def test_slower_is_told_by_the_best_evidence_there_is():
    rows = [
        timed(0.9, candidate="by verdict, within noise", verdict="inconclusive"),
        timed(0.99, candidate="by verdict", verdict="slower"),
        *over_sessions([(90, 100), (91, 100), (90, 101)], candidate="by interval", verdict=None),
        *over_sessions([(90, 100), (120, 100), (85, 100)], candidate="by interval, wide", verdict=None),
        timed(0.99, candidate="by ratio"),
    ]
    told_all = told(rows)["scores"]
    assert told_all.table["share_slower"].item() == pytest.approx(3 / 5)
    assert any(
        "verdict of 2 workloads" in n and "of 2 more" in n and "ratio alone of the other 1." in n
        for n in told_all.notes
    )


def test_matched_speed_ups_are_over_what_all_slices_have():
    rows = [
        *problems([2.0, 8.0], origin_method="bold"),
        *(row | {"candidate": f"{row['problem']}/two"} for row in problems([2.0, None], origin_method="failing")),
    ]
    for row in rows:
        row["cell_id"] = f"{row['candidate']}"
    table = told(rows, by=("method",))["scores"].table
    assert table.select("method", "speedup", "speedup_matched", "matched").rows() == [
        ("bold", pytest.approx(4.0), pytest.approx(2.0), 1),
        ("failing", pytest.approx(2.0), pytest.approx(2.0), 1),
    ]


def test_matching_across_gpus_is_by_kernel_within_categories():
    rows = [
        timed(2.0, gpu="a", candidate="x"),
        timed(8.0, gpu="a", candidate="y"),
        timed(3.0, gpu="b", candidate="x"),
        timed(5.0, gpu="a", candidate="z", category="GEMM"),
    ]
    table = told(rows, by=("gpu",))["scores"].table
    assert table.select("speedup_matched", "matched").rows() == [(pytest.approx(2.0), 1), (pytest.approx(3.0), 1)]
    within = told(rows, by=("category", "gpu"))["scores"].table.select("category", "gpu", "matched").rows()
    assert within == [("GEMM", "a", 1), ("Reduce", "a", 1), ("Reduce", "b", 1)]
    unmatched = told(rows, by=("category",))["scores"]
    assert "speedup_matched" not in unmatched.table.columns
    assert any("do not compare" in note for note in unmatched.notes)


@pytest.mark.parametrize(("n", "c"), [(10, 3), (5, 0), (5, 5), (7, 1)])
@pytest.mark.parametrize("k", [1, 2, 5])
def test_pass_at_k_is_the_share_of_all_choices_of_k(n, c, k):
    choices = list(combinations(range(n), k))
    wanted = sum(any(one < c for one in choice) for choice in choices) / len(choices)
    assert at_least_one([n], [c], k)[0] == pytest.approx(wanted, abs=1e-12)


def test_pass_at_k_is_unbiased_where_the_plain_estimate_is_not():
    k, n, p = 5, 10, 0.3
    c = np.random.default_rng(1).binomial(n, p, 200_000)
    truth = 1 - (1 - p) ** k
    assert at_least_one(np.full(c.shape, n), c, k).mean() == pytest.approx(truth, abs=0.002)
    assert abs((1 - (1 - c / n) ** k).mean() - truth) > 0.03


def test_pass_at_k_of_a_million_samples_is_a_number():
    assert at_least_one([1_000_000], [1], 10)[0] == pytest.approx(1e-5)
    assert np.isnan(at_least_one([3], [1], 4)[0])


def samples(results, problem="p", **columns):
    for number, speedup in enumerate(results):
        facts = {"problem": problem, "candidate": f"{problem}/{number}", "origin_sample": number, **columns}
        yield cell(**facts, **WRONG) if speedup is None else timed(speedup, **facts)


def drawn(rows, **request):
    table = told(rows, **request)["draws"].table
    return {(row["k"], row["p"]): (row["share"], row["tasks"], row["left_out"]) for row in table.to_dicts()}


def test_draws_are_means_over_tasks_with_enough_samples():
    rows = [*samples([3.0, 1.2, None, None]), *samples([None, None], problem="q")]
    found = drawn(rows, draws=(1, 2, 3), thresholds=(0.0, 2.0))
    assert found[1, 0.0] == (pytest.approx((2 / 4 + 0) / 2), 2, 0)
    assert found[2, 0.0] == (pytest.approx((5 / 6 + 0) / 2), 2, 0)
    assert found[2, 2.0] == (pytest.approx((3 / 6 + 0) / 2), 2, 0)
    assert found[3, 0.0] == (pytest.approx(1.0), 1, 1)
    assert "Tasks with fewer than k samples are left out: 1 at k = 3." in told(rows, draws=(3,))["draws"].notes


def test_unnumbered_candidates_are_samples_infra_failures_not():
    rows = [
        timed(2.0, candidate="a"),
        cell(candidate="b", **WRONG),
        cell(candidate="c", status="infra_error", fault="infra"),
    ]
    assert drawn(rows, draws=(2, 3), thresholds=(0.0,)) == {(2, 0.0): (1.0, 1, 0), (3, 0.0): (None, 0, 1)}


def test_sample_on_two_hosts_is_one_and_must_pass_on_both():
    rows = [*samples([2.0, 2.0]), *samples([2.0, None], host_id="host2")]
    assert drawn(rows, draws=(1, 2), thresholds=(0.0,)) == {(1, 0.0): (0.5, 1, 0), (2, 0.0): (1.0, 1, 0)}


def rounds(results, sample=0, **columns):
    for number, speedup in enumerate(results):
        facts = {"candidate": f"p/{sample}r{number}", "origin_sample": sample, "origin_round": number, **columns}
        yield cell(**facts, **WRONG) if speedup is None else timed(speedup, **facts)


def test_the_best_of_the_rounds_so_far():
    rows = [*rounds([None, 0.8, 2.5]), *rounds([1.2], sample=1), *rounds([None, None, None], sample=2)]
    table = told(rows, thresholds=(0.0, 1.0))["rounds"].table
    assert table.select("round", "attempts", "fast_0", "fast_1").rows() == [
        (0, 3, pytest.approx(1 / 3), pytest.approx(1 / 3)),
        (1, 3, pytest.approx(2 / 3), pytest.approx(1 / 3)),
        (2, 3, pytest.approx(2 / 3), pytest.approx(2 / 3)),
    ]
    assert drawn(rows, draws=(1,), thresholds=(0.0,))[1, 0.0] == (pytest.approx(2 / 3), 1, 0)


def test_attempt_counts_from_its_first_counted_round():
    first, *others = rounds([2.0, 2.0])
    rows = [first | {"status": "infra_error", "fault": "infra"}, *others, *rounds([None, None], sample=1)]
    table = told(rows, thresholds=(0.0,))["rounds"].table
    assert table.select("attempts", "fast_0").rows() == [(1, 0.0), (2, 0.5)]


def test_without_rounds_that_is_said():
    answer = told([timed(2.0)])["rounds"]
    assert answer.table.is_empty()
    assert list(answer.notes) == ["There is no result for refinement: no candidate names its round."]


def test_failures_are_paid_for_and_a_kernel_only_once():
    paid = {"origin_tokens_in": 600, "origin_tokens_out": 400, "origin_cost_usd": 0.5}
    rows = [
        cell(candidate="lost", status="infra_error", fault="infra", **paid),
        *(timed(2.0, candidate="a", gpu=gpu, **paid) for gpu in ("x", "y")),
        cell(candidate="b", gpu="x", **WRONG, **paid),
        timed(2.0, candidate="c", gpu="x"),
    ]
    answer = told(rows)["costs"]
    row = answer.table.to_dicts()[0]
    assert (row["kernels"], row["tokens_per_correct"], row["usd_per_correct"]) == (3, 2000.0, 1.0)
    assert "1 of 3 kernels do not state their tokens, and are left out of them." in answer.notes
    assert only_cost([cell(**WRONG, **paid)])["usd_per_correct"] is None
    assert only_cost([timed(2.0)])["usd"] is None


def only_cost(rows):
    return told(rows)["costs"].table.to_dicts()[0]


def test_energy_is_a_mean_over_problems_with_an_interval():
    ratios = {"p0": [2.0, 8.0], "p1": [1.0], "p2": [4.0]}
    rows = [
        timed(1.0, problem=problem, candidate=f"{problem}/{number}", energy_ratio=ratio)
        for problem, found in ratios.items()
        for number, ratio in enumerate(found)
    ]
    rows += [cell(problem="p3", candidate="p3/wrong", energy_ratio=99.0, **WRONG), timed(1.0, candidate="p4/none")]
    (row,) = told(rows)["energy"].table.to_dicts()
    logs = np.log([4.0, 1.0, 4.0])
    reach = t.ppf(0.975, 2) * logs.std(ddof=1) / 3**0.5
    assert (row["problems"], row["workloads"]) == (3, 4)
    assert (row["energy_ratio"], row["low"], row["high"]) == pytest.approx(
        tuple(np.exp(logs.mean() + sign * reach) for sign in (0, -1, 1))
    )
    by_problem = told(rows, by=("problem",))["energy"].table
    assert dict(by_problem.select("problem", "energy_ratio").iter_rows()) == pytest.approx({"p0": 4, "p1": 1, "p2": 4})
    assert by_problem["low"].null_count() == 3


def test_without_energies_nothing_is_said_of_them():
    assert "energy" not in told(problems([1.0, None]))


def test_slices_keep_nulls_and_their_own_counts():
    rows = [*problems([2.0, None], origin_method="m"), timed(0.5, candidate="hand")]
    table = told(rows, by=("method", "gpu"))["scores"].table
    assert table.select("method", "gpu", "cells", "fast_1", "timed").rows() == [
        ("m", "h200", 2, 0.5, 1),
        (None, "h200", 1, 0.0, 1),
    ]


def test_every_column_of_an_answer_has_a_meaning():
    for answer in told([*rounds([None, 2.0])], by=("gpu", "model")).values():
        columns = {name for name in answer.table.columns if name not in ("gpu", "model")}
        lacking = {n for n in columns - set(answer.meanings) if not n.startswith("fast_")}
        assert not lacking, answer.name


@pytest.mark.parametrize("wrong", [{"thresholds": (-1.0,)}, {"draws": (0,)}, {"by": ("colour",)}])
def test_requests_that_cannot_be_served(wrong):
    with pytest.raises(UsageError):
        told([cell()], **wrong)


def test_empty_tables_have_no_scores():
    with pytest.raises(NothingSelectedError, match="no cell"):
        told([])


def test_a_hundred_thousand_distinct_candidates():
    number = 100_000
    one = tables([timed(2.0)])
    many = one.cells.select(pl.all().repeat_by(number).explode()).with_columns(
        record=pl.int_range(number, dtype=pl.UInt32), candidate=pl.int_range(number).cast(pl.String)
    ).with_columns(cell_id="candidate", candidate_sha256="candidate")  # fmt: skip
    answers = ask("scores", replace(one, cells=many), QuestionOptions())
    assert answers[0].table["counted"].item() == number
    assert answers[1].table["tasks"].to_list() == [1] * len(answers[1].table)


def test_scores_of_many_workloads_weigh_each_problem_alike():
    rows = [timed(2.0, problem="a", workload=f"w{n}", candidate="a/x") for n in range(9)]
    rows.append(timed(8.0, problem="b", candidate="b/x"))
    row = only(rows)
    assert (row["timed"], row["speedup"]) == (10, pytest.approx(4.0))


def test_scores_leave_controls_and_references_apart():
    rows = [
        timed(2.0, candidate="softmax/fast"),
        cell(candidate="softmax/wrong", **WRONG),
        cell(candidate="softmax/cheats", expect="incorrect_values", **WRONG),
        cell(candidate="softmax/passes", expect="incorrect_values"),
        timed(1.0, candidate="softmax/@reference", expect=None),
    ]
    found = told(rows)
    (row,) = found["scores"].table.to_dicts()
    assert (row["cells"], row["counted"], row["correct_rate"], row["speedup"]) == (2, 2, 0.5, pytest.approx(2.0))
    assert found["scores"].notes[0].startswith("Controls, which are declared to fail, and references")
    assert found["apart"].table.rows() == [("candidate", 2, 1, 1), ("control", 2, 1, 1), ("reference", 1, 1, 0)]
    by_kind = told(rows, by=("kind",))["scores"].table
    assert by_kind.select("kind", "cells").rows() == [("candidate", 2), ("control", 2), ("reference", 1)]


def test_scores_of_references_only_score_them():
    row = only([timed(1.0, candidate="softmax/@reference")])
    assert (row["cells"], row["correct_rate"], row["speedup"]) == (1, 1.0, pytest.approx(1.0))


def test_mean_speedup_has_an_interval_over_problems():
    speedups = {"p0": (2.0, 8.0), "p1": (1.0,), "p2": (4.0,)}
    rows = [
        timed(speedup, problem=problem, candidate=f"{problem}/{number}")
        for problem, found in speedups.items()
        for number, speedup in enumerate(found)
    ]
    logs = np.log([4.0, 1.0, 4.0])
    reach = t.ppf(0.975, 2) * logs.std(ddof=1) / 3**0.5
    row = only(rows)
    assert (row["speedup"], row["speedup_low"], row["speedup_high"]) == pytest.approx(
        tuple(np.exp(logs.mean() + sign * reach) for sign in (0, -1, 1))
    )
    assert told(rows, by=("problem",))["scores"].table["speedup_low"].null_count() == 3


def test_scores_count_faster_and_slower_by_verdict():
    rows = [
        timed(2.0, candidate=f"softmax/{verdict}", verdict=verdict) for verdict in ("faster", "slower", "inconclusive")
    ]
    row = only(rows)
    assert (row["share_faster"], row["share_slower"], row["fast_1"]) == (
        pytest.approx(1 / 3),
        pytest.approx(1 / 3),
        1.0,
    )


@pytest.mark.parametrize("by", ["category", "language", "prompt"])
def test_rounds_by_slice_are_the_share_of_samples_by_hand(by):
    drawn = random.Random(7)
    rows, best = [], {}
    for problem, sample, round_ in product(range(6), range(3), range(3)):
        value = f"{by}-{problem % 2}" if by != "language" else ("triton", "cuda")[problem % 2]
        column = {"prompt": "origin_prompt"}.get(by, by)
        speedup = drawn.choice([0.0, 0.5, 1.5, 3.0])
        about = {
            "problem": f"p{problem}", "candidate": f"p{problem}/r{round_}-s{sample}", column: value,
            "origin_method": "refine", "origin_sample": sample, "origin_round": round_,
        }  # fmt: skip
        times = {"baseline_median_ns": 100.0 * speedup, "candidate_median_ns": 100.0}
        rows.append(cell(**about, **times) if speedup else failed(**about))
        for later in range(round_, 3):
            key = (value, later)
            best.setdefault(key, {}).setdefault((problem, sample), []).append(speedup)
    found = told(rows, by=(by,))["rounds"].table
    assert found.height == len(best) == 6
    for row in found.to_dicts():
        samples = best[row[by], row["round"]].values()
        for threshold in (0, 1, 2):
            share = sum(max(one) > threshold for one in samples) / len(samples)
            assert row[f"fast_{threshold}"] == pytest.approx(share), row
