"""Markdown for a pull request, text for a terminal."""

import pytest

from kernel_matrix.analysis.compare import compare
from kernel_matrix.errors import UsageError
from kernel_matrix.report.formats import FORMATS, render
from kernel_matrix.results.labels import describe_label
from tests.analysis.made import cell, over_sessions, tables

ROWS = [
    *over_sessions([(200.0, 100.0)] * 3, gpu="h200"),
    *over_sessions([(200.0, 250.0)] * 3, gpu="h100", verdict="slower"),
    cell(
        gpu="h100", candidate="softmax/broken", status="incorrect_values", fault="candidate", message="output 0: 3 of 9"
    ),
    cell(gpu="h100", candidate="softmax/lost", status="gpu_busy", fault="infra", message="held by pid 1"),
]


@pytest.fixture
def said(gathered):
    def written(name, rows, **further):
        made = tables(rows)
        return render(name)(gathered(made, **further), made, None)

    return written


@pytest.mark.parametrize("name", ["md", "text"])
def test_the_numbers_are_all_there(said, name):
    text = said(name, ROWS)
    assert "4 cells: 2 of 3 that count are correct (67 %)" in text
    assert "1 cell does not count" in text
    assert "1.26×" in text  # geometric mean of 2 and 0.8
    assert "▲ 2.00×" in text
    assert "▼ 0.80×" in text
    assert "incorrect values" in text
    assert "pass" in text


@pytest.mark.parametrize("name", ["md", "text"])
def test_summary_shows_labels_with_class_and_advice(said, name):
    rows = [{**row, "labels": ["unsteady", "budget_reached"]} for row in ROWS]
    text = said(name, rows)
    assert f"unsteady, 4 outcomes: {describe_label('unsteady')}\n" in text
    assert "budget_reached" not in text.replace("&#95;", "_")


def test_markdown_is_a_table_and_nothing_of_a_name_is_markup(said):
    hostile = "a|b <img src=x> [x](http://e) @all `c`"
    rows = [cell(candidate=hostile, status="timeout", fault="candidate", message=hostile)]
    text = said("md", rows, title=hostile)
    assert "| h200 | 1 | 1 |" in text
    assert "<img" not in text
    assert "](http" not in text
    assert "@" not in text
    assert "## <code>a&#124;b &lt;img src=x&gt;" in text


def test_nothing_a_terminal_obeys_is_written(said):
    text = said(
        "text", [cell(gpu="\x1b[2Jh", status="timeout", fault="candidate", message="\x07\u202e")], title="a\x1b[31m"
    )
    assert all(c.isprintable() or c == "\n" for c in text)


@pytest.mark.parametrize("name", ["md", "text"])
@pytest.mark.parametrize(
    ("rows", "said_too"),
    [
        ([], "These tables hold no results."),
        ([cell(status="timeout", fault="candidate")], "only one GPU"),
        ([cell(status="gpu_busy", fault="infra")], "0 of 0 that count are correct (–)"),
    ],
)
def test_report_of_few_results_states_what_is_missing(said, name, rows, said_too):
    assert said_too in said(name, rows)


def test_a_comparison_is_told(said):
    base, new = tables(ROWS), tables(ROWS[:-2])
    found = compare(base.cells, new.cells, names=("last week", "now"))
    assert "Against last week: " in said("text", ROWS, comparison=found)
    assert "missing" in said("md", ROWS, comparison=found)


def test_formats_are_told_where_one_is_not_known():
    with pytest.raises(UsageError, match="unknown report format 'pdf'") as caught:
        render("pdf")
    assert all(name in str(caught.value) for name in FORMATS)
