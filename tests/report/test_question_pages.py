"""Pages of questions, with answers or the reason why there are none."""

import polars as pl
import pytest

from kernel_matrix.analysis.questions import QUESTIONS, Answer
from kernel_matrix.errors import NothingSelectedError
from kernel_matrix.report.question_pages import answer_questions
from tests.analysis.made import cell, over_sessions, tables

SOME = Answer(name="x", title="X", table=pl.DataFrame({"a": [1]}))


def one(asking):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kernel_matrix.report.question_pages.QUESTIONS", ("q",))
        patch.setattr("kernel_matrix.report.question_pages.ask", lambda *_: asking())
        (found,) = answer_questions(tables([]))
    return found


def raising(error):
    raise error


def test_an_answer_is_handed_on_and_an_empty_one_says_so():
    assert (one(lambda: [SOME]).answers, one(lambda: [SOME]).statement) == ((SOME,), "")
    assert "nothing" in one(list).statement


def test_long_answer_keeps_first_rows_with_a_note(monkeypatch):
    monkeypatch.setattr("kernel_matrix.report.question_pages.MOST", 2)
    long = Answer(name="x", title="X", table=pl.DataFrame({"a": range(1000)}), notes=("own",))
    (kept,) = one(lambda: [long]).answers
    assert (kept.table["a"].to_list(), kept.notes) == ([0, 1], ("own", "The first 2 of 1,000 rows are on this page."))


def test_a_question_with_nothing_to_say_states_why():
    found = one(lambda: raising(NothingSelectedError("no cell", next_step="Run some.")))
    assert ("no cell" in found.statement, found.broken) == (True, False)


def test_a_question_that_goes_wrong_does_not_cost_the_others():
    found = one(lambda: raising(ZeroDivisionError("by zero")))
    assert (found.broken, "ZeroDivisionError: by zero" in found.statement) == (True, True)


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [cell()],
        [cell(status="timeout", fault="candidate")],
        [row for gpu in ("a", "b") for row in over_sessions([(200.0, 100.0)] * 3, gpu=gpu)],
    ],
    ids=["empty", "untimed", "failed", "two"],
)
def test_no_question_goes_wrong(rows):
    found = list(answer_questions(tables(rows)))
    assert [one.question for one in found] == list(QUESTIONS)
    assert [one.statement for one in found if one.broken] == []
