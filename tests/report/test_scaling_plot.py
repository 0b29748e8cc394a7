"""Plots over numbers of ranks: when they are there, where their lines lie, and what they say without being seen."""

import re

import polars as pl
import pytest

from kernel_matrix.report.question_pages import answer_question
from kernel_matrix.report.scaling_plot import ScalingLine, scaling_plot, scaling_plots
from tests.analysis.made import STEADY, tables, timed


def line(**given):
    usual = {"label": "gathered", "ranks": [2, 4, 8], "values": [10.0, 20.0, 40.0], "intervals": [None, None, None]}
    return ScalingLine(**{**usual, **given})


def points_of(drawn, kind="><title>"):
    found = re.findall(rf'<polyline points="([^"]+)" style="[^"]*"{kind}', drawn)
    return [[tuple(map(float, one.split(","))) for one in points.split()] for points in found]


def answered(*counts, problem="all_reduce", bus=None):
    """The answer to ``scaling``, for one candidate with these numbers of ranks."""
    known = {"problem": problem, "candidate": f"{problem}/gathered"}
    rows = [
        row
        for ranks in counts
        for row in timed([ranks * median for median in STEADY], ranks=ranks, cell_id=f"{ranks}", **known)
    ]
    (answer,) = answer_question("scaling", tables(rows)).answers
    return answer.table.with_columns(bus_bytes_per_s=pl.lit(bus, pl.Float64))


def test_scaling_plot_says_its_figures():
    drawn = scaling_plot("Time", [line(), line(label="pulled", ranks=[2, 8], values=[5.0, 6.25], intervals=[None] * 2)])
    said = "gathered 10 with 2, 20 with 4, 40 with 8; pulled 5 with 2, 6.25 with 8"
    assert f'aria-label="Time, by ranks: {said}"' in drawn
    assert "</svg> pulled</span>" in drawn


def test_scaling_plot_is_straight_where_time_follows_ranks():
    ((low, middle, high),) = points_of(scaling_plot("t", [line()]))
    for axis in (0, 1):
        assert middle[axis] - low[axis] == pytest.approx(high[axis] - middle[axis], abs=0.2) != 0


def test_scaling_plot_draws_intervals_around_values():
    drawn = scaling_plot("t", [line(intervals=[(9.0, 11.0), None, (1e-9, 1e9)])])
    ((value, *_),) = points_of(drawn)
    near, far = points_of(drawn, ' class="interval"')
    assert near[0][1] > value[1] > near[1][1]
    assert {near[0][0], near[1][0]} == {value[0]}
    assert all(0 <= y <= 220 for _, y in far)


@pytest.mark.parametrize("values", [[7.0], [1e-3, 1e6], [100.0, 100.0], [99.0, 101.0]])
def test_scaling_plot_has_few_ticks_for_any_values(values):
    ranks = [2, 3][: len(values)]
    drawn = scaling_plot("t", [line(ranks=ranks, values=values, intervals=[None] * len(values))])
    assert 1 <= drawn.count('text-anchor="end"') <= 7
    assert "nan" not in drawn


def test_scaling_plot_escapes_names():
    assert "<img" not in scaling_plot("<b>", [line(label="<img src=x>")])


@pytest.mark.parametrize(("bus", "plots"), [(None, 1), (4e10, 2)])
def test_bandwidth_is_plotted_where_it_is_known(bus, plots):
    drawn = scaling_plots(answered(2, 4, bus=bus))
    assert drawn.count('class="shares"') == plots
    assert ("bus bandwidth, GB/s, by ranks: gathered 40 with 2, 40 with 4" in drawn) == (plots == 2)


def test_problems_with_the_longest_calls_are_plotted():
    rows = [answered(ranks, 2 * ranks, problem=f"problem{ranks}") for ranks in range(2, 10)]
    drawn = scaling_plots(pl.concat(rows))
    assert drawn.count('class="shares"') == 6
    assert "problem9 [default]" in drawn
    assert "problem3 [default]" not in drawn
    assert "2 more problems or places there." in drawn
