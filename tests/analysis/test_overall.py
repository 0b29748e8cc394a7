"""The answer of a comparison as a whole."""

import math

import numpy as np
import pytest
from scipy import stats

from kernel_matrix.analysis.compare import compare
from tests.analysis.made import STEADY, cells, failed, timed


def found(changes, **columns):
    """A comparison in which each problem is slower by its share."""
    base = [row for name in changes for row in timed(STEADY, problem=name, **columns)]
    new = [
        row
        for name, change in changes.items()
        for row in timed([(1 + change) * value for value in STEADY], problem=name, **columns)
    ]
    return compare(cells(base), cells(new))


def test_mean_and_interval_are_over_problems():
    changes = {"a": 0.10, "b": 0.02, "c": -0.01, "d": 0.03}
    overall = found(changes).overall[0]
    logs = np.log1p(list(changes.values()))
    low, high = stats.t.interval(0.95, 3, logs.mean(), stats.sem(logs))
    assert (overall.ratio, overall.low, overall.high) == pytest.approx(
        (math.exp(logs.mean()), math.exp(low), math.exp(high))
    )
    assert (overall.rows, overall.problems, overall.higher, overall.lower) == (4, 4, 3, 1)
    assert overall.sign_p == pytest.approx(stats.binomtest(3, 4).pvalue)
    assert str(overall).startswith("+3.42 % (95 % interval -3.64 % to +11.00 %) in the mean over 4 problems; ")


def test_problem_with_many_workloads_counts_once():
    rows = [row for number in range(9) for row in timed(STEADY, workload=f"w{number}")]
    base = [*rows, *timed(STEADY, problem="other")]
    new = [*rows, *timed([1.04 * value for value in STEADY], problem="other")]
    overall = compare(cells(base), cells(new)).overall[0]
    assert (overall.rows, overall.problems) == (10, 2)
    assert overall.ratio == pytest.approx(math.sqrt(1.04))


def test_slices_are_there_where_there_are_several():
    base = [*timed(STEADY, gpu="h100"), *timed(STEADY, gpu="h200", category="Matmul")]
    named = [(one.by, one.name, one.rows) for one in compare(cells(base), cells(base)).overall]
    assert named == [
        ("all", "all", 2), ("gpu", "h100", 1), ("gpu", "h200", 1), ("category", "Matmul", 1), ("category", "Reduce", 1)
    ]  # fmt: skip


def test_single_problem_has_no_interval():
    overall = found({"a": 0.05}).overall[0]
    assert (overall.low, overall.high, overall.sign_p) == (None, None, 1.0)
    assert str(overall).startswith("+5.00 % in the mean over 1 problem; 1 of 1 rows")


def test_nothing_timed_has_no_overall_answer():
    assert compare(cells(timed(STEADY)), cells([failed()])).overall == ()
