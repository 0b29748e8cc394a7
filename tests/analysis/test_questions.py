"""Properties of every question."""

import pytest
from polars.testing import assert_frame_equal

from kernel_matrix.analysis.questions import QUESTIONS, QuestionOptions, ask
from tests.analysis.made import over_sessions, tables


@pytest.mark.parametrize("question", tuple(QUESTIONS))
def test_a_name_given_twice_is_one_name(question):
    made = tables(
        row
        for gpu in ("a", "b")
        for night in range(2)
        for ranks in (1, 2)
        for row in over_sessions(
            [(200.0, 100.0), (201.0, 99.0 + night), (200.0, 101.0)],
            gpu=gpu,
            night=night,
            ranks=ranks,
            cell_id=f"{gpu} {ranks}",
        )
    )
    by = ("category", "dtype")
    for once, twice in zip(
        ask(question, made, QuestionOptions(by=by)), ask(question, made, QuestionOptions(by=(*by, *by))), strict=True
    ):
        # Variance has rows in no order where they are equally noisy.
        assert_frame_equal(once.table, twice.table, check_row_order=False)
        assert list(once.notes) == list(twice.notes)
