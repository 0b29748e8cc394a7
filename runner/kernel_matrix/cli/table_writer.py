"""The one writer of tables: as wide as the terminal for people, and as CSV, Markdown, LaTeX or JSON."""

from __future__ import annotations

import csv
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kernel_matrix.api.wording import printable
from kernel_matrix.cli.global_options import is_quiet
from kernel_matrix.cli.output import console, print_json, write_line
from kernel_matrix.cli.table_options import ALL_COLUMNS, TableFormat, TableOptions

Row = Mapping[str, Any]

_GAP: Final = 2
"""Blanks between columns."""
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
"""Beginnings of a text that a spreadsheet would evaluate."""
_MARKDOWN: Final = re.compile(r"([\\`*_{}\[\]<>#|~])")
_LATEX: Final = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "µ": r"\textmu{}",
    "×": r"$\times$",
    "±": r"$\pm$",
    **{character: f"\\{character}" for character in "&%$#_{}"},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TableColumn:
    """One column of a table."""

    name: str
    """As in ``--columns``, ``--sort`` and CSV; also the key of its value unless ``value`` is given."""
    heading: str = ""
    """What people read above it; the name where it is empty."""
    value: Callable[[Row], Any] | None = None
    """Returns the value to sort by, unrounded."""
    text: Callable[[Row], str] | None = None
    """Returns the text for people; :func:`text_of` the value by default."""
    is_number: bool = False
    rank: int = 0
    """How soon the column is left out where there is no room: the highest first, those of 0 last."""
    shortest: int | None = None
    """Characters to which texts may be cut; ``None``: they are never cut, as numbers are not."""
    wraps: bool = False
    """Of the last column: a text that is too long goes on below."""
    on_request: bool = False
    """Shown only where ``--columns`` names it."""
    in_csv: bool = False
    """In CSV also where nobody asks for it."""

    def value_of(self, row: Row) -> Any:
        """Return the value of one row."""
        return row[self.name] if self.value is None else self.value(row)

    def text_of(self, row: Row) -> str:
        """Return the text of one row, on one line."""
        if self.text is None:
            return text_of(self.value_of(row))
        text = self.text(row)
        return text if text.isprintable() else printable(text)

    @property
    def title(self) -> str:
        """The heading."""
        return printable(self.heading or self.name)


@dataclass(frozen=True, slots=True)
class _Layout:
    widths: dict[int, int]
    """Number of the column → characters; in the table's order."""
    hidden: list[int]


def text_of(value: Any) -> str:
    """Return a value as text on one line: ``–`` where it is unknown."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, (list, tuple)):
        value = ", ".join(map(text_of, value))
    return printable(str(value))


def on_request(names: Iterable[str], shown: Iterable[TableColumn]) -> list[TableColumn]:
    """Return a column for each of ``names`` that ``shown`` has not, shown only where ``--columns`` names it."""
    known = {column.name for column in shown}
    return [TableColumn(name=name, on_request=True) for name in names if name not in known]


def write_table(
    rows: Sequence[Row],
    columns: Sequence[TableColumn],
    options: TableOptions,
    *,
    title: str = "",
    checked: bool = False,
) -> None:
    """Write a table to standard output in the form, with the columns and in the order that ``options`` ask for.

    Args:
        rows: The rows; as JSON they are written whole unless columns are asked for.
        columns: All columns there are.
        options: Of the command line.
        title: A line above it.
        checked: ``True`` if ``options`` were checked already, against the columns of several tables.

    Raises:
        UsageError: A column is asked for that there is not.
    """
    if not checked:
        options.check(column.name for column in columns)
    shown = _chosen(columns, options)
    arranged = arrange(rows, columns, options)
    if options.format is TableFormat.JSON:
        documents = ({column.name: column.value_of(row) for column in shown} for row in arranged)
        print_json(list(documents if options.columns else arranged))
    elif options.format is TableFormat.CSV:
        _write_csv(arranged, shown, title)
    else:
        _write_groups(arranged, columns, shown, options, title)
    left_out = len(rows) - len(arranged)
    if left_out and options.for_people and not is_quiet():
        write_line(f"… and {left_out:,} more rows (--limit)")


def arrange(rows: Sequence[Row], columns: Sequence[TableColumn], options: TableOptions) -> Sequence[Row]:
    """Return the rows in the wanted order, grouped, and no more of them than wanted; unknown values come last."""
    by_name = {column.name: column for column in columns}
    arranged = list(rows)
    for name in reversed((*options.group_by, *options.sort)):
        column = by_name.get(name.removeprefix("-"))
        if column is None:
            continue
        known = [(column.value_of(row), row) for row in arranged]
        unknown = [row for value, row in known if value is None]
        ordered = sorted(
            (pair for pair in known if pair[0] is not None),
            key=lambda pair: _sortable(pair[0]),
            reverse=name.startswith("-"),
        )
        arranged = [row for _, row in ordered] + unknown
    return arranged[: options.limit]


def _sortable(value: Any) -> Any:
    return value if isinstance(value, (int, float)) else str(value)


def _chosen(columns: Sequence[TableColumn], options: TableOptions) -> list[TableColumn]:
    """Return the columns that are asked for; without ``--columns``, all but those on request."""
    if ALL_COLUMNS in options.columns:
        return list(columns)
    if options.columns:
        by_name = {column.name: column for column in columns}
        return [by_name[name] for name in options.columns if name in by_name]
    is_csv = options.format is TableFormat.CSV
    return [column for column in columns if not column.on_request or (is_csv and column.in_csv)]


# ---- for programs


def _write_csv(rows: Iterable[Row], columns: Sequence[TableColumn], title: str) -> None:
    if title:
        write_line(f"# {printable(title)}")
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow([_csv_value(column.name) for column in columns])
    writer.writerows([_csv_value(column.value_of(row)) for column in columns] for row in rows)


def _csv_value(value: Any) -> Any:
    """Return a value for a cell; a text that a spreadsheet would take for a formula gets a quote before it."""
    if isinstance(value, (list, tuple)):
        value = ";".join(map(str, value))
    if value is None or isinstance(value, (int, float)):
        return value
    text = str(value)
    return f"'{text}" if text.startswith(_FORMULA) else text


# ---- for people and papers


def _write_groups(
    rows: Sequence[Row], columns: Sequence[TableColumn], shown: Sequence[TableColumn], options: TableOptions, title: str
) -> None:
    """Write one table for each value of the columns to group by; all with the same widths."""
    by_name = {column.name: column for column in columns}
    keys = [by_name[name] for name in options.group_by if name in by_name]
    shown = [column for column in shown if column not in keys]
    texts = [[column.text_of(row) for row in rows] for column in shown]
    # A column without any text says nothing, unless it was asked for.
    kept = [number for number, column in enumerate(shown) if options.columns or not rows or any(texts[number])]
    shown, texts = [shown[number] for number in kept], [texts[number] for number in kept]
    layout = _fit(shown, texts, _width() if options.for_people and not options.columns else None)
    for number, (name, first, last) in enumerate(_groups(rows, keys)):
        if number:
            write_line("")
        heading = ", ".join(part for part in (title, name) if part)
        part = [column_texts[first:last] for column_texts in texts]
        _WRITERS[options.format](shown, part, layout, heading)
    if layout.hidden and options.for_people and not is_quiet():
        names = ", ".join(shown[number].name for number in layout.hidden)
        console().print(f"no room for {names}: --columns A,B shows any", markup=False)


def _groups(rows: Sequence[Row], keys: Sequence[TableColumn]) -> Iterator[tuple[str, int, int]]:
    """Yield the name, the first row and the row after the last of each group; without ``keys``, one of all."""
    if not keys:
        yield "", 0, len(rows)
        return
    first, name = 0, ""
    for number, row in enumerate(rows):
        present = ", ".join(f"{key.title} {key.text_of(row) or '–'}" for key in keys)
        if number and present != name:
            yield name, first, number
            first = number
        name = present
    if rows:
        yield name, first, len(rows)


def _width() -> int | None:
    """Return the columns of the terminal; ``None`` into a pipe, where nothing is cut."""
    return console().width if sys.stdout.isatty() else None


def _fit(columns: Sequence[TableColumn], texts: Sequence[Sequence[str]], width: int | None) -> _Layout:
    """Return how wide each column is, and which have no room.

    Columns of rank 0 come first, cut to their shortest if need be, and are widened before others get any room.
    """
    whole = [max(map(_cells, (column.title, *texts[number]))) for number, column in enumerate(columns)]
    if width is None:
        return _Layout(dict(enumerate(whole)), [])
    least = [
        whole[number] if column.shortest is None else min(whole[number], max(column.shortest, _cells(column.title)))
        for number, column in enumerate(columns)
    ]
    order = sorted(range(len(columns)), key=lambda number: columns[number].rank)
    room = width + _GAP
    widths: dict[int, int] = {}
    for number in order:
        if columns[number].rank == 0 and (least[number] + _GAP <= room or not widths):
            widths[number] = least[number]
            room -= least[number] + _GAP
    for number in order:
        if number in widths:
            more = max(0, min(whole[number] - widths[number], room))
            widths[number] += more
            room -= more
        elif least[number] + _GAP <= room:
            widths[number] = min(whole[number], room - _GAP)
            room -= widths[number] + _GAP
    hidden = [number for number in range(len(columns)) if number not in widths]
    return _Layout({number: widths[number] for number in sorted(widths)}, hidden)


def _cells(text: str) -> int:
    """Return how many columns of the terminal a text takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _write_plain(columns: Sequence[TableColumn], texts: Sequence[Sequence[str]], layout: _Layout, heading: str) -> None:
    """Write columns of plain text: rich takes a thousand times as long for large tables."""
    from rich.text import Text

    screen = console()
    if heading:
        screen.print(Text(heading, style="bold"))
    head = [_padded(columns[number], columns[number].title, width) for number, width in layout.widths.items()]
    screen.print(Text((" " * _GAP).join(head).rstrip(), style="bold"), soft_wrap=True)
    for cells in zip(*(texts[number] for number in layout.widths), strict=True):
        sys.stdout.write(f"{_line(columns, cells, layout)}\n")


def _line(columns: Sequence[TableColumn], cells: Sequence[str], layout: _Layout) -> str:
    """Return one row; several lines where its last column wraps."""
    *before, last = zip(layout.widths.items(), cells, strict=True)
    line = "".join(_padded(columns[number], text, width) + " " * _GAP for (number, width), text in before)
    (number, width), text = last
    if columns[number].wraps and _cells(text) > width:
        text = f"\n{' ' * _cells(line)}".join(textwrap.wrap(text, width))
    else:
        text = _padded(columns[number], text, width)
    return f"{line}{text}".rstrip()


def _padded(column: TableColumn, text: str, width: int) -> str:
    """Return ``text`` with blanks, or cut, so that it has ``width`` cells."""
    taken = _cells(text)
    if taken > width:
        from rich.cells import set_cell_size

        return f"{set_cell_size(text, width - 1)}…"
    blanks = " " * (width - taken)
    return blanks + text if column.is_number else text + blanks


def _write_markdown(columns: Sequence[TableColumn], texts: Sequence[Sequence[str]], _: _Layout, heading: str) -> None:
    lines = [f"**{escape_markdown(heading)}**", ""] if heading else []
    lines.append(f"| {' | '.join(escape_markdown(column.title) for column in columns)} |")
    lines.append(f"| {' | '.join('---:' if column.is_number else '---' for column in columns)} |")
    lines += (f"| {' | '.join(map(escape_markdown, row))} |" for row in zip(*texts, strict=True))
    sys.stdout.write("\n".join(lines) + "\n")


def escape_markdown(text: str) -> str:
    """Return ``text`` so that Markdown shows it as it is."""
    return _MARKDOWN.sub(r"\\\1", text)


def _write_latex(columns: Sequence[TableColumn], texts: Sequence[Sequence[str]], _: _Layout, heading: str) -> None:
    lines = [f"% {escape_latex(heading)}"] if heading else []
    lines.append(rf"\begin{{tabular}}{{{''.join('r' if column.is_number else 'l' for column in columns)}}}")
    lines.append(r"\toprule  % of the package booktabs")
    lines.append(f"{' & '.join(escape_latex(column.title) for column in columns)} \\\\")
    lines.append(r"\midrule")
    lines += (f"{' & '.join(map(escape_latex, row))} \\\\" for row in zip(*texts, strict=True))
    lines += [r"\bottomrule", r"\end{tabular}"]
    sys.stdout.write("\n".join(lines) + "\n")


def escape_latex(text: str) -> str:
    """Return ``text`` so that LaTeX shows it as it is."""
    return "".join(_LATEX.get(character, character) for character in text)


_WRITERS: Final = {
    TableFormat.TABLE: _write_plain,
    TableFormat.MARKDOWN: _write_markdown,
    TableFormat.LATEX: _write_latex,
}
