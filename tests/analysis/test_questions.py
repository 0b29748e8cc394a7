"""Properties of every question."""

import pytest
from polars.testing import assert_frame_equal

from kernel_matrix.analysis.questions import QUESTIONS, QuestionOptions, ask
from tests.analysis.made import tables, two_nights


@pytest.mark.parametrize("question", tuple(QUESTIONS))
def test_a_name_given_twice_is_one_name(question):
    made = tables(two_nights())
    by = ("category", "dtype")
    for once, twice in zip(
        ask(question, made, QuestionOptions(by=by)), ask(question, made, QuestionOptions(by=(*by, *by))), strict=True
    ):
        # Variance has rows in no order where they are equally noisy.
        assert_frame_equal(once.table, twice.table, check_row_order=False)
        assert list(once.notes) == list(twice.notes)
