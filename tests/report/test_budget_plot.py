"""The plot of shares over budgets: where its lines lie, and what it says to those who cannot see it."""

import re

import pytest

from kernel_matrix.report.budget_plot import BudgetLine, budget_plot


def line(**given):
    usual = {"label": "refine", "budgets": [0.1, 1.0, 10.0], "shares": [0.0, 0.5, 1.0], "ended": [0.0, 0.0, 0.0]}
    return BudgetLine(**{**usual, **given})


def lines_of(drawn):
    """The points of each line, and whether it is faint."""
    found = re.findall(r'<polyline points="([^"]+)" style="[^"]*"( class="spent")?><title>', drawn)
    return [([tuple(map(float, one.split(","))) for one in points.split()], bool(faint)) for points, faint in found]


def test_budget_plot_says_the_shares_of_the_largest_budget():
    drawn = budget_plot("Solved", [line(), line(label="repeated", shares=[0.0, 0.25, 0.25])])
    assert 'aria-label="Solved: refine 100 % for 10; repeated 25 % for 10"' in drawn
    assert "</svg> repeated</span>" in drawn


def test_budget_plot_rises_on_a_logarithmic_axis():
    ((points, is_faint),) = lines_of(budget_plot("t", [line()]))
    (low, none), (middle, half), (high, whole) = points
    assert (is_faint, middle - low) == (False, pytest.approx(high - middle, abs=0.2))
    assert none - half == pytest.approx(half - whole, abs=0.2) != 0


def test_budget_plot_is_faint_where_nothing_more_was_bought():
    drawn = budget_plot("t", [line(shares=[0.0, 0.5, 0.5], ended=[0.0, 0.5, 0.5])])
    (bought, _), (spent, is_faint) = lines_of(drawn)
    assert (len(bought), len(spent), is_faint, bought[-1]) == (2, 2, True, spent[0])


@pytest.mark.parametrize("budgets", [[5.0], [1.0, 2.0], [1e-6, 1e9], [200.0, 500.0, 1000.0]])
def test_budget_plot_has_few_ticks_for_any_budgets(budgets):
    flat = {"shares": [0.0] * len(budgets), "ended": [0.0] * len(budgets)}
    drawn = budget_plot("t", [line(budgets=budgets, **flat)])
    assert 1 <= drawn.count('text-anchor="middle"') <= 7
    assert "nan" not in drawn


def test_budget_plot_escapes_names():
    assert "<img" not in budget_plot("<b>", [line(label="<img src=x>")])
