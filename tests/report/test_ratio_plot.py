"""The plot of ratios: where dots, intervals and predictions lie, and what it says to those who cannot see it."""

import re

import pytest

from kernel_matrix.report.ratio_plot import PlottedRatio, ratio_plot


def row(**given):
    usual = {"label": "all", "ratio": 1.5, "low": 1.2, "high": 1.8, "memory": 1.43, "compute": 1.0}
    return PlottedRatio(**{**usual, **given})


def numbers(drawn, pattern):
    return [float(number) for number in re.findall(pattern, drawn)]


def test_ratio_plot_says_all_figures():
    drawn = ratio_plot("a against b", [row(), row(label="fp16", ratio=0.5, low=None, high=None)])
    assert 'role="img"' in drawn
    assert 'aria-label="a against b: all 1.50× (1.20 to 1.80); fp16 0.50×"' in drawn
    assert ">1.50× (1.20 to 1.80)</text>" in drawn


def test_ratio_plot_dot_lies_within_its_interval_beside_prediction():
    drawn = ratio_plot("t", [row()])
    (dot,) = numbers(drawn, r'cx="([\d.]+)"')
    ((low, high),) = re.findall(r'x1="([\d.]+)" x2="([\d.]+)" y1="[\d.]+" y2="[\d.]+" class="interval"', drawn)
    (memory,) = numbers(drawn, r'd="M([\d.]+) [^"]*" class="memory"')
    (compute,) = numbers(drawn, r'd="M([\d.]+) [^"]*" class="compute"')
    assert float(low) < memory < dot < float(high)
    assert compute < float(low)


def test_ratio_plot_clips_wide_intervals_to_the_axis():
    drawn = ratio_plot("t", [row(low=1e-9, high=1e9)])
    assert all(200 <= place <= 560 for place in numbers(drawn, r'x[12]="([\d.]+)"'))


@pytest.mark.parametrize("ratio", [1e-4, 0.3, 1.0, 1.02, 7.0, 300.0])
def test_ratio_plot_has_few_ticks_for_any_ratio(ratio):
    drawn = ratio_plot("t", [row(ratio=ratio, low=None, high=None, memory=None, compute=None)])
    assert 1 <= drawn.count('class="tick"') <= 8
    assert "data sheets" not in drawn


def test_ratio_plot_escapes_names():
    drawn = ratio_plot("<b>", [row(label="<img src=x>")])
    assert "<img" not in drawn
    assert "<b>●" in drawn
    assert "&lt;b&gt;" in drawn
