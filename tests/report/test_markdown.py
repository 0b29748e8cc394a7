"""Markdown of a comparison, as a pull request shows it."""

import pytest

from kernel_matrix.analysis.compare import compare
from kernel_matrix.report.markdown import comparison_markdown
from tests.analysis.made import SLOWER, STEADY, cells, failed, timed


def test_what_is_flagged_comes_first_then_counts_then_rows():
    base = [*timed(STEADY), *timed(STEADY, problem="relu"), *timed(STEADY, problem="gelu")]
    new = [*timed(SLOWER), failed(problem="relu"), *timed(STEADY, problem="gelu")]
    said = comparison_markdown(compare(cells(base), cells(new), names=("old", "now"))).splitlines()
    assert said[0] == "## <code>old</code> → <code>now</code>"
    assert said[2] == "**1 broke, 1 regression, of 3 rows compared.**"
    assert "in the mean over 2 problems; 1 of 2 rows are shown to have changed; 1 are above, 0 below" in said[4]
    assert said[6:9] == ["| broke | regression | equivalent |", "| ---: | ---: | ---: |", "| 1 | 1 | 1 |"]
    assert said[12].startswith("| broke | <code>relu &#91;default&#93; softmax/triton&#95;row fp32</code> |")
    assert "| 0.1 µs | 0.105 µs | +5.0 % |" in said[13]
    assert "gelu" not in "\n".join(said)


def test_nothing_flagged_is_said():
    said = comparison_markdown(compare(cells(timed(STEADY)), cells(timed(STEADY))))
    assert "**Nothing broke and nothing is shown to be slower, of 1 row compared.**" in said
    assert "| what |" not in said


def test_rows_beyond_are_counted():
    names = [f"p{number}" for number in range(7)]
    base = [row for name in names for row in timed(STEADY, problem=name)]
    found = compare(cells(base), cells([failed(problem=name) for name in names]))
    said = comparison_markdown(found, most=5)
    assert said.count("| broke | <code>") == 5
    assert "… and 2 more rows." in said


@pytest.mark.parametrize("mark", ["<script>", "|", "`", "@somebody", "[x](http://y)", "**", "\n# head", "\x1b[2J"])
def test_names_and_messages_are_never_markup(mark):
    base, new = timed(STEADY, problem=f"p{mark}q"), [failed(problem=f"p{mark}q", message=mark)]
    said = comparison_markdown(compare(cells(base), cells(new)))
    (row,) = [line for line in said.splitlines() if line.startswith("| broke | <code>")]
    assert row.count("|") == 8
    inside = row.replace("<code>", "").replace("</code>", "")
    assert not set("<>`@[]*\x1b") & set(inside)
