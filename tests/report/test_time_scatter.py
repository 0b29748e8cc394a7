"""Spread of times, and their change from night to night."""

import pytest

from kernel_matrix.analysis.outcomes import outcomes
from kernel_matrix.report.time_scatter import nights, spreads
from tests.analysis.made import cell, cells


def timed(candidate, ns, night, **columns):
    return cell(candidate=candidate, candidate_median_ns=ns, baseline_median_ns=1000.0, night=night, **columns)


def test_a_night_with_other_cells_does_not_look_slower():
    rows = [timed("a", 100.0, 0), timed("a", 100.0, 1), timed("b", 9000.0, 1), timed("b", 9000.0, 2)]
    found = nights(cells(rows))
    assert found["candidate"].to_list() == pytest.approx([0.0, 0.0, 0.0])
    assert found["cells"].to_list() == [1, 2, 1]


def test_a_slower_night_is_told_by_its_share():
    rows = [
        timed(name, ns * (1.21 if night else 1.0), night) for name, ns in (("a", 100), ("b", 5000)) for night in (0, 1)
    ]
    assert nights(cells(rows))["candidate"].to_list() == pytest.approx([1 / 1.1 - 1, 0.1])


def test_one_night_says_nothing():
    assert nights(cells([timed("a", 100.0, 0)])).is_empty()
    assert nights(cells([])).is_empty()


def test_spreads_of_one_gpu_are_by_dtype():
    rows = [cell(candidate=f"c{n}", dtype=dtype) for n, dtype in enumerate(("fp16", "fp32"))]
    assert spreads(outcomes(cells(rows)).collect())["group"].to_list() == ["fp16", "fp32"]


def test_spreads_are_by_gpu_and_only_where_they_are_known():
    rows = [cell(candidate=f"c{n}", spread_within=n / 100) for n in range(1, 12)]
    rows.append(cell(gpu="h100", spread_within=None))
    found = spreads(outcomes(cells(rows)).collect())
    assert found.rows() == [
        ("h200", "within a session", 11, pytest.approx(0.06), pytest.approx(0.10), pytest.approx(0.11))
    ]
