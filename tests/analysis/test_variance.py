"""Answers and errors of the question ``variance``."""

import numpy as np
import pytest

from kernel_matrix.errors import UsageError
from tests.analysis.made import cell, over_sessions
from tests.analysis.noisy import answers, measured


def test_a_name_that_is_no_slice_is_refused():
    with pytest.raises(UsageError, match="cannot slice by"):
        answers([cell(candidate_median_ns=1.0)], by=("colour",))


def test_every_answer_is_there_and_says_what_its_columns_mean():
    found = answers(measured(np.random.default_rng(12)))
    assert list(found) == [
        *("components", "components_by_cell", "noise", "grades", "noise_floor", "heterogeneity", "units")
    ]
    assert all(answer.meanings for answer in found.values())


def test_variance_by_kind_separates_references():
    names = ("softmax/one", "softmax/@reference")
    rows = [row for name in names for row in over_sessions([(100, 200), (101, 200)], candidate=name)]
    assert set(answers(rows, by=("kind",))["noise"].table["candidate_kind"]) == {"candidate", "reference"}
