"""The answer in words."""

from kernel_matrix.report.question_pages import answer_questions
from kernel_matrix.report.short_answer import answer_in_words
from tests.analysis.made import cell, over_sessions, tables


def said(gathered, rows, **further):
    made = tables(rows)
    return dict(answer_in_words(gathered(made, **further), tuple(answer_questions(made))))


def two_gpus():
    return [
        row
        for gpu, us in (("h200", 100.0), ("h100", 125.0))
        for problem in ("softmax", "gelu")
        for row in over_sessions([(200e3, us * 1e3)] * 2, gpu=gpu, problem=problem, candidate=f"{problem}/one")
    ]


def test_two_gpus_are_compared_and_what_fails_on_one_is_named(gathered):
    broken = {"candidate": "gelu/two", "problem": "gelu"}
    rows = [
        *two_gpus(),
        *over_sessions([(200e3, 1e5)] * 2, gpu="h200", **broken),
        cell(gpu="h100", status="timeout", fault="candidate", **broken),
    ]
    found = said(gathered, rows, findings=[])
    assert found["Which GPU is faster?"].startswith("h200 is 1.")
    assert found["What is not?"] == "gelu/two passes on h200 and fails on h100: timeout."
    assert found["How good are the kernels?"].startswith("83 % of 6 cells that count are correct.")
    assert found["How far to believe it?"] == (
        "100 % of 5 times have grade A or B, 0 % grade C. The GPU was proven to be used by nothing else for 100 %."
        " The audit found nothing."
    )


def test_one_gpu_and_one_session_are_said_to_be(gathered):
    found = said(gathered, [cell(baseline_median_ns=2e3, candidate_median_ns=1e3, grade="C")])
    assert found["Which GPU is faster?"] == "There is only one GPU, so there is nothing to compare it with."
    assert "What is not?" not in found
    assert (
        "0 % of 1 time have grade A or B, 100 % grade C. 100 % come from one session" in found["How far to believe it?"]
    )


def test_nothing_timed_says_what_is_known(gathered):
    found = said(gathered, [cell(status="timeout", fault="candidate")])
    assert found["How good are the kernels?"] == "0 % of 1 cell that count are correct. Nothing was timed."
    assert found["How far to believe it?"] == "Nothing was timed, so only correctness is known."
