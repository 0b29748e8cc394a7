"""Formatting of numbers."""

import math

import pytest

from kernel_matrix.report.number_format import bucket, number, one_line, share, times


@pytest.mark.parametrize(
    ("speedup", "said"),
    [
        (None, "–"), (math.nan, "–"), (math.inf, "∞×"), (0.0, "0×"), (0.0954, "0.095×"), (1.5, "1.50×"), (12.3, "12×"),
        (15_000, "15,000×"),
    ],
)  # fmt: skip
def test_speedups_have_the_digits_that_matter(speedup, said):
    assert times(speedup) == said


@pytest.mark.parametrize(
    ("part", "whole", "said"),
    [(0, 0, "–"), (0, 9, "0 %"), (9, 9, "100 %"), (1, 3, "33 %"), (1, 200, "0.5 %"), (1, 10_000, "< 0.1 %"),
     (9_999, 10_000, "> 99.9 %"), (995, 1000, "99.5 %")],
)  # fmt: skip
def test_what_is_not_all_or_nothing_is_never_rounded_to_it(part, whole, said):
    assert share(part, whole) == said


@pytest.mark.parametrize(
    ("speedup", "step"),
    [(None, ""), (1.0, "even"), (1.04, "even"), (1.1, "f1"), (1.5, "f2"), (3, "f3"), (9, "f4"), (math.inf, "f4"),
     (0.9, "s1"), (0.6, "s2"), (0.3, "s3"), (0.1, "s4"), (0, "s4")],
)  # fmt: skip
def test_steps_of_colour_are_even_on_the_scale_of_logarithms(speedup, step):
    assert bucket(speedup) == step


def test_counts_and_terminals():
    assert (number(1, "cell"), number(20_000, "cell")) == ("1 cell", "20,000 cells")
    assert one_line("a\x1b[2J\u202eb\nc") == r"a\x1b[2J\u202eb c"
