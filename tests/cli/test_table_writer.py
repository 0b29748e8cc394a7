"""Tables: what fits into a terminal, and what other programs read."""

from __future__ import annotations

import csv
import io
import json
import sys
from contextlib import redirect_stdout, suppress

import pytest

from kernel_matrix.cli import pager, table_writer
from kernel_matrix.cli.pager import TerminalBuffer, paged
from kernel_matrix.cli.table_options import TableFormat, TableOptions
from kernel_matrix.cli.table_writer import TableColumn, arrange, escape_latex, escape_markdown, write_table
from kernel_matrix.errors import UsageError

ROWS = [
    {"name": "a_kernel_with_a_long_name", "gpu": "h100", "time": 12345.25, "note": "x" * 30, "more": [1, 2]},
    {"name": "=short", "gpu": "a100", "time": None, "note": "", "more": []},
    {"name": "middle", "gpu": "h100", "time": 3.5, "note": "yes", "more": [3]},
]
COLUMNS = (
    TableColumn(name="name", shortest=8),
    TableColumn(name="gpu", heading="GPU", rank=1),
    TableColumn(
        name="time",
        heading="µs",
        text=lambda row: "" if row["time"] is None else f"{row['time']:,.2f}",
        is_number=True,
    ),
    TableColumn(name="note", rank=2),
    TableColumn(name="more", on_request=True),
)


def written(capsys, rows=ROWS, of=COLUMNS, **options):
    write_table(rows, of, TableOptions(**options))
    return capsys.readouterr().out


@pytest.fixture
def terminal(monkeypatch):
    """Make standard output a terminal of so many columns."""

    def of(width):
        monkeypatch.setattr(table_writer, "_width", lambda: width)

    return of


def test_table_into_a_pipe_cuts_nothing(capsys):
    first, *rest = written(capsys).splitlines()
    assert first.split() == ["name", "GPU", "µs", "note"]
    assert rest[0].split() == ["a_kernel_with_a_long_name", "h100", "12,345.25", "x" * 30]


@pytest.mark.parametrize("width", range(12, 75))
def test_table_never_is_wider_than_the_terminal(width, terminal, capsys):
    terminal(width)
    lines = written(capsys).splitlines()
    assert max(map(len, lines[:4])) <= max(width, len("12,345.25") + 10)


def test_table_shortens_names_and_hides_by_rank(terminal, capsys):
    terminal(30)
    lines = written(capsys).splitlines()
    assert lines[:4] == [
        "name                        µs",
        "a_kernel_with_a_lo…  12,345.25",
        "=short",
        "middle                    3.50",
    ]
    assert lines[4] == "no room for gpu, note: --columns A,B shows any"


def test_columns_asked_for_are_shown_whatever_their_width(terminal, capsys):
    terminal(20)
    lines = written(capsys, columns=("more", "note", "name")).splitlines()
    assert lines[0].split() == ["more", "note", "name"]
    assert lines[1].split() == ["1,", "2", "x" * 30, "a_kernel_with_a_long_name"]
    assert len(lines) == 4


def test_last_column_wraps_below_itself(terminal, capsys):
    terminal(24)
    columns = (TableColumn(name="name"), TableColumn(name="why", wraps=True, shortest=8))
    lines = written(capsys, [{"name": "k1", "why": "one two three four five six"}], columns).splitlines()
    assert lines == ["name  why", "k1    one two three four", "      five six"]


def test_column_without_any_text_is_left_out(capsys):
    assert written(capsys, ROWS[1:2]).splitlines()[0].split() == ["name", "GPU"]


def test_rows_are_sorted_by_value_unknown_last_and_limited():
    def order(*sort, limit=None):
        return [row["name"] for row in arrange(ROWS, COLUMNS, TableOptions(sort=sort, limit=limit))]

    assert order("time") == ["middle", "a_kernel_with_a_long_name", "=short"]
    assert order("-time") == ["a_kernel_with_a_long_name", "middle", "=short"]
    assert order("gpu", "-time", limit=2) == ["=short", "a_kernel_with_a_long_name"]


def test_groups_are_tables_with_common_widths(capsys):
    lines = written(capsys, group_by=("gpu",)).splitlines()
    assert lines[0] == "GPU a100"
    assert lines[3:5] == ["", "GPU h100"]
    assert lines[1] == lines[5]
    assert "GPU" not in lines[1].split()


def test_rows_left_out_by_the_limit_are_counted(capsys):
    assert written(capsys, limit=1).splitlines()[-1] == "… and 2 more rows (--limit)"


def test_csv_has_values_and_no_formula(capsys):
    rows = list(csv.reader(io.StringIO(written(capsys, format=TableFormat.CSV))))
    assert rows[0] == ["name", "gpu", "time", "note"]
    assert rows[1][2] == "12345.25"
    assert rows[2] == ["'=short", "a100", "", ""]


def test_csv_joins_lists(capsys):
    assert written(capsys, format=TableFormat.CSV, columns=("more",)).splitlines() == ["more", "1;2", '""', "3"]


@pytest.mark.parametrize("start", list("=+-@\t\r"))
def test_csv_quotes_every_beginning_of_a_formula(start):
    assert table_writer._csv_value(f"{start}1") == f"'{start}1"
    assert table_writer._csv_value(-1.5) == -1.5


def test_json_is_whole_unless_columns_are_named(capsys):
    assert json.loads(written(capsys, format=TableFormat.JSON, limit=2)) == ROWS[:2]
    assert json.loads(written(capsys, format=TableFormat.JSON, columns=("gpu",), limit=1)) == [{"gpu": "h100"}]


def test_markdown_and_latex_are_tables(capsys):
    markdown = written(capsys, ROWS[2:], format=TableFormat.MARKDOWN).splitlines()
    assert markdown == ["| name | GPU | µs | note |", "| --- | --- | ---: | --- |", "| middle | h100 | 3.50 | yes |"]
    latex = written(capsys, ROWS[2:], format=TableFormat.LATEX).splitlines()
    assert latex[0] == r"\begin{tabular}{llrl}"
    assert latex[4] == r"middle & h100 & 3.50 & yes \\"


def test_markup_of_names_is_escaped():
    assert escape_markdown("a|b_c<d>[e](f)`g`") == r"a\|b\_c\<d\>\[e\](f)\`g\`"
    assert escape_latex(r"50 % of a_b & \input{x} $1") == (r"50 \% of a\_b \& \textbackslash{}input\{x\} \$1")


def test_names_cannot_speak_to_the_terminal(capsys):
    assert "\x1b" not in written(capsys, [{**ROWS[0], "name": "a\x1b[2Jb"}])


def test_unknown_column_is_refused_with_the_closest(capsys):
    with pytest.raises(UsageError, match=r"--sort tim: there is no such column; did you mean 'time'\?"):
        written(capsys, sort=("-tim",))


# ---- Pager


@pytest.fixture
def screen(monkeypatch):
    """Print so many lines to a terminal of 24; returns those that came on it, and those that the pager got."""

    def printed(lines, *, wanted=True, command="sh", error=None):
        out, shown = TerminalBuffer(), []
        monkeypatch.setenv("PAGER", command)
        monkeypatch.setenv("LINES", "24")
        monkeypatch.setattr(pager, "_show", lambda command, text: bool(shown.append(text)) or True)
        with redirect_stdout(out), suppress(ZeroDivisionError), paged(wanted=wanted):
            sys.stdout.write("line\n" * lines)
            if error is not None:
                raise error
        return out.getvalue().count("line"), "".join(shown).count("line")

    return printed


def test_long_output_goes_to_the_pager(screen):
    assert screen(10) == (10, 0)
    assert screen(100) == (0, 100)
    assert screen(100, wanted=False) == (100, 0)


@pytest.mark.parametrize("command", ["", "cat", "no-such-program-at-all"])
def test_no_pager_is_started_where_none_is_wanted(command, screen):
    assert screen(100, command=command) == (100, 0)


def test_output_before_an_error_is_shown_without_pager(screen):
    assert screen(100, error=ZeroDivisionError()) == (100, 0)
