"""Markdown of a comparison, as a pull request shows it."""

from dataclasses import replace

import pytest

from kernel_matrix.analysis.compare import compare
from kernel_matrix.report.markdown import MARKER, comparison_markdown
from tests.analysis.made import SLOWER, STEADY, cells, failed, timed


def test_what_is_flagged_comes_first_then_counts_then_rows():
    base = [*timed(STEADY), *timed(STEADY, problem="relu"), *timed(STEADY, problem="gelu")]
    new = [*timed(SLOWER), failed(problem="relu"), *timed(STEADY, problem="gelu")]
    said = comparison_markdown(compare(cells(base), cells(new), names=("old", "now"))).splitlines()
    assert said.pop(0) == MARKER
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


def test_long_names_and_messages_fit_into_a_comment():
    names = [f"{number:03}{'_µ' * 2_000}" for number in range(300)]
    base = [row for name in names for row in timed(STEADY, problem=name)]
    new = [failed(problem=name, message="<" * 5_000) for name in names]
    said = comparison_markdown(compare(cells(base), cells(new), names=("b" * 9_000, "n" * 9_000)))
    assert 60_000 < len(said.encode()) <= 65_536
    shown = said.count("| broke | <code>")
    assert 5 < shown < 50
    assert f"… and {300 - shown} more rows." in said
    assert said.endswith("\n")
    assert "Rules: " in said
    assert said.count("<code>") == said.count("</code>")


def test_notes_beyond_are_counted():
    found = compare(cells(timed(STEADY)), cells([failed()]))
    said = comparison_markdown(replace(found, notes=["*" * 5_000] * 100))
    assert len(said.encode()) <= 65_536
    assert said.splitlines()[0] == MARKER
    assert " more notes." in said
    assert said.count("| broke | <code>") == 1, "notes take no room from rows"


def test_short_rows_are_shown_up_to_their_number():
    names = [f"p{number}" for number in range(60)]
    base = [row for name in names for row in timed(STEADY, problem=name)]
    said = comparison_markdown(compare(cells(base), cells([failed(problem=name) for name in names])))
    assert said.count("| broke | <code>") == 50
