"""Noise of cells, and the sessions needed for a precision."""

import numpy as np
import pytest
from scipy import stats

from kernel_matrix.analysis.cell_noise import sessions_needed
from tests.analysis.made import cell, over_sessions
from tests.analysis.noisy import answers


@pytest.mark.parametrize("half_width", [0.001, 0.005, 0.01, 0.02])
def test_sessions_needed_are_the_fewest_that_are_enough(half_width):
    deviations = np.array([0.0005, 0.004, 0.01, 0.03])
    found = sessions_needed(deviations, half_width)
    for sd, n in zip(deviations, found, strict=True):

        def reach(count, sd=sd):
            return stats.t.ppf(0.975, count - 1) * sd / np.sqrt(count)

        assert reach(n) <= np.log1p(half_width) * (1 + 1e-3)
        assert n == 2 or reach(n - 1) > np.log1p(half_width) * (1 - 1e-3)
    assert np.isnan(sessions_needed(np.array([np.nan]), half_width))[0]


def test_constant_time_needs_two_sessions_one_session_unknown():
    rows = [
        *over_sessions([(2e5, 1e5)] * 3, candidate="softmax/constant"),
        *over_sessions([(2e5, 1e5)], candidate="softmax/once"),
    ]
    found = answers(rows)["noise"]
    constant, once = found.table.sort("candidate").to_dicts()
    assert (constant["sessions_for_0.1_percent"], constant["sd_time_percent"]) == (2, 0.0)
    assert (once["sessions_for_1_percent"], once["half_width_percent"]) == (None, None)
    assert "1 of 2 cells have one session" in found.notes[0]


def test_a_cell_without_baseline_has_times_alone():
    found = answers([cell(session=i, candidate_median_ns=1e5 + 100 * i, baseline_median_ns=None) for i in range(3)])
    assert set(found["components"].table["of"]) == {"candidate"}
    row = found["noise"].table.row(0, named=True)
    assert row["sd_speedup_percent"] is None
    assert row["sessions_for_1_percent"] >= 2
