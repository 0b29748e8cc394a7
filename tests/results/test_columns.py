"""Columns become series without a silent loss."""

import polars as pl
import pytest

from kernel_matrix.results.columns import frame


@pytest.mark.parametrize(
    "lists",
    [[], [[]], [None], [[1, 2], [], None, [1, 2], [3]], [[1.0], [1]], [[None, 1], None, [None, 1]]],
    ids=str,
)
def test_a_column_of_lists_is_what_polars_makes_of_it(lists):
    exactly = [value if value is None else [one if one is None else int(one) for one in value] for value in lists]
    found = frame({"pids": lists}, {"pids": pl.List(pl.Int64())})["pids"]
    assert found.equals(pl.Series("pids", exactly, dtype=pl.List(pl.Int64())), check_dtypes=True, null_equal=True)


def test_lists_of_names_keep_their_order_and_their_type():
    reasons = pl.List(pl.Enum(["idle", "hot"]))
    lists = [["idle"], ["hot", "idle"], ["idle"], None]
    found = frame({"reasons": lists}, {"reasons": reasons})["reasons"]
    assert (found.dtype, found.to_list()) == (reasons, lists)


@pytest.mark.parametrize("lists", [[["idle"], ["cold"]], [["idle"], [3]]], ids=str)
def test_a_list_that_does_not_fit_is_refused(lists):
    with pytest.raises((TypeError, pl.exceptions.PolarsError)):
        frame({"reasons": lists}, {"reasons": pl.List(pl.Enum(["idle"]))})
