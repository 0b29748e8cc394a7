"""The numbers of the first page."""

import re

import pytest

from kernel_matrix.analysis.outcomes import outcomes
from kernel_matrix.analysis.questions import QuestionOptions, ask
from kernel_matrix.report.overview import THRESHOLDS, apart_notes, make_overview, score_gpus, summarise_portability
from tests.analysis.made import cell, over_sessions, tables


def of(*rows):
    made = tables(rows)
    return make_overview(outcomes(made.cells).collect(), made)


def sentence(*rows):
    return summarise_portability(outcomes(tables(rows).cells).collect())


def failed(**columns):
    return cell(**{"status": "incorrect_values", "fault": "candidate", **columns})


def test_infrastructure_is_in_no_denominator():
    seen = of(
        *over_sessions([(200.0, 100.0)] * 2, candidate="a"),
        failed(candidate="b"),
        cell(candidate="c", status="gpu_busy", fault="infra"),
    )
    assert (seen.cells, seen.counted, seen.passed) == (3, 2, 1)
    row = seen.scores.row(-1, named=True)
    assert (row["correct_rate"], row["fast_1"], row["speedup"]) == (0.5, 0.5, pytest.approx(2.0))


def test_what_is_declared_to_fail_is_told_apart():
    seen = of(
        failed(candidate="control", expect="incorrect_values"),
        failed(candidate="real"),
        cell(candidate="liar", expect="timeout"),
    )
    assert (seen.expected, seen.unexpected_passes) == (1, 1)
    assert seen.apart == [("control", 2, 1)]
    assert list(apart_notes(seen)) == ["2 controls in no rate; 1 ended as declared."]
    assert (seen.cells, seen.candidates) == (1, 1)


def test_overview_counts_labels_that_say_something():
    seen = of(
        *over_sessions([(200.0, 100.0)] * 2, candidate="a", labels=["unsteady", "budget_reached", "not_a_label"]),
        *(timed for n in range(3) for timed in over_sessions([(200.0, 100.0)], candidate=f"b{n}", labels=["unsteady"])),
        failed(candidate="c", labels=["no_clock_probe"]),
    )
    assert seen.labels == {"no_clock_probe": 1, "unsteady": 4}


def test_trust_is_counted_over_what_was_timed_best_first():
    seen = of(
        *over_sessions([(200.0, 100.0)] * 5, candidate="a"),
        *over_sessions([(200.0, 100.0)], candidate="b", grade="C", clock_state="unlocked"),
        failed(candidate="c", grade=None),
    )
    assert seen.trust["Grade"] == [("A", 1, 0), ("C", 1, 2)]
    assert seen.trust["Sessions"] == [("5 or more", 1, 0), ("1 session", 1, 2)]
    assert seen.trust["Clocks"] == [("locked", 1, 0), ("unlocked", 1, 1)]


def test_score_gpus_gives_what_the_question_scores_answers():
    rows = [
        timed
        for n in range(7)
        for timed in over_sessions([(100.0 + 30 * n, 100.0)], gpu="ab"[n % 3 == 0], candidate=f"c{n}")
    ]
    rows += [failed(gpu="a", candidate="x"), cell(gpu="b", candidate="y", status="gpu_busy", fault="infra")]
    rows += [failed(gpu="c", candidate="only", status="compile_error")]
    rows += [failed(gpu="a", candidate="control", expect="incorrect_values")]
    made = tables(rows)
    by_gpu, together = (
        ask("scores", made, QuestionOptions(by=by, thresholds=THRESHOLDS))[0].table for by in (("gpu",), ())
    )
    found = score_gpus(made)
    for name in ("cells", "counted", "timed", "compile_rate", "correct_rate", "fast_1.5", "speedup", "share_slower"):
        assert found[name].to_list() == pytest.approx([*by_gpu[name], together[name].item()]), name


@pytest.mark.parametrize("gpus", [("h200",), ("h200", "h100")])
def test_scores_have_row_all_only_with_several_gpus(gpus):
    seen = of(*(cell(gpu=gpu, baseline_median_ns=2.0, candidate_median_ns=1.0) for gpu in gpus))
    assert seen.scores["gpu"].to_list() == [*sorted(gpus), *(["all"] if len(gpus) > 1 else [])]


def test_portability_in_a_sentence():
    rows = [cell(gpu=gpu, candidate=name) for gpu in ("h200", "h100") for name in ("both", "one")]
    rows += [failed(gpu="h200", candidate="half"), cell(gpu="h100", candidate="half")]
    rows += [failed(gpu=gpu, candidate="never") for gpu in ("h200", "h100")]
    rows += [cell(gpu="h200", candidate="lost"), cell(gpu="h100", candidate="lost", status="gpu_busy", fault="infra")]
    assert sentence(*rows) == (
        "Of 4 candidates × workloads that counted on all 2 GPUs, 2 (50%) pass on every GPU, 1 (25%) pass on some"
        " and fail on others, 1 (25%) pass on none. 1 more did not count on every GPU and are left out."
    )


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([], "These tables name no GPU"),
        ([cell()], r"These tables have only one GPU \(h200\)"),
        ([cell(gpu=gpu, status="gpu_busy", fault="infra") for gpu in ("a", "b")], "No candidate counted on all 2 GPUs"),
    ],
)
def test_unknown_portability_is_stated(rows, said):
    assert re.match(said, sentence(*rows))


def test_odd_times_and_empty_tables():
    odd = cell(baseline_median_ns=200.0, candidate_median_ns=0.0, speedup=float("inf"))
    assert of(odd).odd_times == 1
    assert (of().outcomes, of().cells, dict(of().trust)) == (0, 0, {})
