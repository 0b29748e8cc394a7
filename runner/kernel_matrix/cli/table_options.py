"""Options of every verb that prints a table: form, columns, order, groups and how many rows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from functools import wraps
from typing import Any

import typer

from kernel_matrix.cli.added_parameters import Verb, parameter, with_parameters
from kernel_matrix.errors import UsageError, suggestion


class TableFormat(str, Enum):
    """Forms of a table."""

    TABLE = "table"
    CSV = "csv"
    MARKDOWN = "markdown"
    LATEX = "latex"
    JSON = "json"


ALL_COLUMNS = "all"
"""Word for ``--columns`` that shows every column there is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOptions:
    """Form, columns and order of the tables that a command line asks for."""

    format: TableFormat = TableFormat.TABLE
    columns: tuple[str, ...] = ()
    """Columns to show, in this order; none named: the usual ones, as many as there is room for."""
    sort: tuple[str, ...] = ()
    """Columns to sort by, the first counts most; one with ``-`` before it is sorted downwards."""
    group_by: tuple[str, ...] = ()
    """Columns whose values make a table each."""
    limit: int | None = None

    @property
    def as_json(self) -> bool:
        """``True`` if one JSON document is wanted in place of tables."""
        return self.format is TableFormat.JSON

    @property
    def for_people(self) -> bool:
        """``True`` if people read the table on a terminal, with notes below it."""
        return self.format is TableFormat.TABLE

    def check(self, known: Iterable[str]) -> None:
        """Check that each column that is named is one of ``known``.

        Raises:
            UsageError: One is not; or there is nothing to show.
        """
        names = list(dict.fromkeys(known))
        wanted = {
            "--columns": [name for name in self.columns if name != ALL_COLUMNS],
            "--sort": [name.removeprefix("-") for name in self.sort],
            "--group-by": self.group_by,
        }
        for option, given in wanted.items():
            for name in given:
                if name not in names:
                    raise UsageError(
                        f"{option} {name}: there is no such column{suggestion(name, names)}",
                        next_step=f"Columns are {', '.join(names)}.",
                    )


_OPTIONS = (
    parameter("format_", TableFormat, TableFormat.TABLE, typer.Option("--format", help="Form of the output.")),
    parameter("as_csv", bool, False, typer.Option("--csv", help="The same as --format csv.")),
    parameter("as_json", bool, False, typer.Option("--json", help="One JSON document; the same as --format json.")),
    parameter(
        "columns",
        list[str],
        None,
        typer.Option("--columns", metavar="A,B", help="Show these columns; or all."),
    ),
    parameter(
        "sort", list[str], None, typer.Option("--sort", metavar="A,-B", help="Sort by these columns; -B: downwards.")
    ),
    parameter("group_by", list[str], None, typer.Option("--group-by", metavar="A,B", help="A table for each value.")),
    parameter("limit", int, None, typer.Option("--limit", metavar="N", min=1, help="Show N rows at most.")),
    parameter("pager", bool, True, typer.Option("--pager/--no-pager", help="Show long output in $PAGER, or less.")),
)


def table_verb(verb: Verb) -> Verb:
    """Return ``verb`` with the options of tables, which it gets as its parameter ``table``."""

    @wraps(verb)
    def paged_verb(*args: Any, pager: bool, **kwargs: Any) -> None:
        from kernel_matrix.cli.pager import paged

        with paged(wanted=pager):
            verb(*args, **kwargs)

    return with_parameters(paged_verb, _OPTIONS, _table_options, instead_of="table")


def _table_options(
    *, format_: TableFormat, as_csv: bool, as_json: bool, pager: bool, limit: int | None, **lists: list[str] | None
) -> dict[str, Any]:
    given = {
        *([format_] if format_ is not TableFormat.TABLE else []),
        *([TableFormat.CSV] if as_csv else []),
        *([TableFormat.JSON] if as_json else []),
    }
    if len(given) > 1:
        raise UsageError(
            f"{' and '.join(sorted(form.value for form in given))} are two forms of one output",
            next_step="Give one of --format, --csv and --json.",
        )
    form = given.pop() if given else TableFormat.TABLE
    parts = {name: split_list(texts) for name, texts in lists.items()}
    return {"table": TableOptions(format=form, limit=limit, **parts), "pager": pager}


def split_list(texts: Iterable[str] | None) -> tuple[str, ...]:
    """Return the parts between commas of an option that may be given several times."""
    return tuple(part for text in texts or () for part in map(str.strip, text.split(",")) if part)
