"""Outcomes by grade."""

import numpy as np

from tests.analysis.made import cells
from tests.analysis.noisy import answers, measured


def test_grades_are_counted_once_per_outcome():
    rng = np.random.default_rng(8)
    rows = [*measured(rng), *measured(rng, candidate="softmax/b", grade=None)]
    assert answers(rows)["grades"].table.select("grade", "outcomes").rows() == [("A", 1), ("none", 1)]
    assert cells(rows).collect().height == 6
