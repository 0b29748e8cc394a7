"""Student's quantile against scipy's distribution, in numbers, arrays and columns."""

import math

import numpy as np
import polars as pl
import pytest
from scipy.stats import binomtest, t

from kernel_matrix.analysis.quantiles import of_degrees, of_sessions, wilson
from kernel_matrix.measure.intervals import t_quantile


def test_numbers_and_arrays():
    assert t_quantile(4) == pytest.approx(t.ppf(0.975, 4))
    assert math.isnan(t_quantile(0))
    found = t_quantile(np.array([-1.0, 1.0, 2.5, 1e6]))
    assert np.isnan(found[0])
    assert found[1:] == pytest.approx(t.ppf(0.975, [1, 2.5, 1e6]))


@pytest.mark.parametrize("engine", ["in-memory", "streaming"])
def test_columns_have_none_below_two_sessions(engine):
    frame = pl.LazyFrame({"n": pl.Series([0, 5, 1, None, 2, 5, 1000], dtype=pl.UInt32)})
    found = frame.select(of_sessions(pl.col("n"))).collect(engine=engine)["n"].to_list()
    assert [found[place] for place in (0, 2, 3)] == [None, None, None]
    assert [found[place] for place in (1, 4, 5, 6)] == pytest.approx(t.ppf(0.975, [4, 1, 4, 999]).tolist())


def test_a_column_of_nothing_has_none():
    assert pl.DataFrame({"n": [1, 0]}).select(of_sessions(pl.col("n")))["n"].to_list() == [None, None]


def test_quantiles_of_any_degrees_are_those_of_student():
    degrees = [2.0, 3.7, 50.0, 1e9, math.inf]
    found = pl.DataFrame({"n": degrees}).select(of_degrees(pl.col("n")))["n"]
    assert found.to_list() == pytest.approx([t.ppf(0.975, each) for each in degrees], rel=1e-4)


@pytest.mark.parametrize(("good", "count"), [(0, 4), (3, 7), (50, 50)])
def test_wilson_is_the_interval_of_scipy(good, count):
    low, high = wilson(pl.col("share"), pl.col("count"))
    found = pl.DataFrame({"share": [good / count], "count": [count]}).select(low=low, high=high).row(0)
    wanted = binomtest(good, count).proportion_ci(method="wilson")
    assert found == pytest.approx((wanted.low, wanted.high))
