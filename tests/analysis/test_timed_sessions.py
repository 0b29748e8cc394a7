"""Selection of timed sessions, and notes on the others."""

import numpy as np
import pytest

from kernel_matrix.errors import NothingSelectedError
from tests.analysis.made import cell
from tests.analysis.noisy import answers, measured


def test_infinite_times_and_failures_are_left_out_and_said():
    rng = np.random.default_rng(7)
    rows = [
        *measured(rng, candidate="softmax/é"),
        cell(candidate_median_ns=float("inf"), baseline_median_ns=1e5),
        cell(candidate_median_ns=0.0, baseline_median_ns=1e5),
        cell(status="infra_error", fault="infra", session_status="infra_error"),
    ]
    found = answers(rows)
    assert "3 of 6 rows of cells are left out" in found["components"].notes[0]
    assert "(1 are infrastructure failures" in found["components"].notes[0]
    assert found["noise"].table["candidate"].to_list() == ["softmax/é"]


@pytest.mark.parametrize("rows", [[], [cell(status="compile_error", fault="candidate", session_status=None)]])
def test_nothing_timed_is_said(rows):
    with pytest.raises(NothingSelectedError, match="passed and was timed"):
        answers(rows)


def test_several_drivers_of_a_cell_are_said():
    rng = np.random.default_rng(10)
    rows = [
        *measured(rng, candidate="softmax/a"),
        *measured(rng, candidate="softmax/b", driver="570.1"),
        *measured(rng, candidate="softmax/b", driver="580.1", night=1),
    ]
    (note,) = answers(rows)["components"].notes[:1]
    assert note.startswith("1 of 2 cells were measured with more than one driver or image")
