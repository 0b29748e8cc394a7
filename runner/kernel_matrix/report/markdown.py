"""Markdown for a pull request."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from kernel_matrix.analysis.comparison import Change, Comparison
from kernel_matrix.report.evidence import evidence, named, percent, quantity
from kernel_matrix.report.markdown_text import code, plain_text

MARKER: Final = "<!-- kernel-matrix comparison -->"
"""First line, which no page shows: a workflow finds the comment of its last run by it, and updates that."""
MOST_ROWS: Final = 50
"""Rows shown."""
MOST_BYTES: Final = 65_000
"""Of the text: a comment on a pull request holds 65,536 characters, and a workflow may add a line."""
_MOST_CHARACTERS: Final = 300
"""Characters of a name, or of one row's evidence."""
_MOST_NOTE: Final = 1_500
"""Characters of a headline or note."""
_TABLE: Final = (
    "| | what | where | base | new | change | evidence |",
    "| --- | --- | --- | ---: | ---: | ---: | --- |",
)
_QUIET: Final = (Change.EQUIVALENT, Change.NEW, Change.BOTH_FAILED)


def comparison_markdown(comparison: Comparison, *, most: int = MOST_ROWS) -> str:
    """Write the flagged changes, the counts, the worst rows and the notes, as long as a comment may be.

    Shows at most ``most`` rows, and fewer if they are long; states the number of further ones. Names and messages stay
    plain text: no markup, links or mentions.
    """
    head, tail = list(_head(comparison)), list(_tail(comparison))
    rows = [row for row in comparison.rows.iter_rows(named=True) if Change(row["change"]) not in _QUIET]
    ending = _fitting(tail, MOST_BYTES // 4)
    left_out = _size([f"… and {len(rows)} more rows.", "", f"… and {len(tail)} more notes."])
    worst = [_row(row, comparison) for row in rows[:most]]
    shown = _fitting(worst, MOST_BYTES - _size([*head, *_TABLE, "", *ending]) - left_out)
    lines = [*head, *(_TABLE if shown else ()), *shown, *([""] if shown else ())]
    if len(shown) < len(rows):
        lines += [f"… and {len(rows) - len(shown)} more rows.", ""]
    lines += ending
    if len(ending) < len(tail):
        lines += [f"… and {len(tail) - len(ending)} more notes."]
    return "\n".join(lines) + "\n"


def _head(comparison: Comparison) -> Iterator[str]:
    counts = comparison.counts()
    yield MARKER
    yield f"## {code(_cut(comparison.base))} → {code(_cut(comparison.new))}"
    yield ""
    if comparison.event is not None:
        yield f"> **{plain_text(_cut(str(comparison.event), _MOST_NOTE))}**"
        yield ""
    headline = comparison.headline
    yield f"**{plain_text(_cut(headline[:1].upper() + headline[1:], _MOST_NOTE))}.**"
    yield ""
    for one in comparison.overall[:1]:
        yield f"{plain_text(_cut(str(one), _MOST_NOTE))}."
        yield ""
    yield f"| {' | '.join(change.value.replace('_', ' ') for change in counts)} |"
    yield f"|{' ---: |' * len(counts)}"
    yield f"| {' | '.join(str(number) for number in counts.values())} |"
    yield ""


def _tail(comparison: Comparison) -> Iterator[str]:
    yield f"Rules: {plain_text(str(comparison.rules))}."
    yield from (f"- {plain_text(_cut(note, _MOST_NOTE))}" for note in comparison.notes)


def _fitting(lines: Sequence[str], room: int) -> Sequence[str]:
    """Return the first lines, as many as have room."""
    left = room
    for number, line in enumerate(lines):
        left -= _size([line])
        if left < 0:
            return lines[:number]
    return lines


def _size(lines: Iterable[str]) -> int:
    """Return bytes, which are never fewer than characters, however a server counts those."""
    return sum(len(line.encode(errors="replace")) + 1 for line in lines)


def _cut(text: str, most: int = _MOST_CHARACTERS) -> str:
    return f"{text[:most]} …" if len(text) > most else text


def _row(row: Mapping[str, Any], comparison: Comparison) -> str:
    of = comparison.rules.of
    proof = _cut(evidence(row, of))
    cells = (
        row["change"].replace("_", " "),
        code(_cut(named(row))),
        code(_cut(f"{row['gpu']} {row['toolchain']}")),
        quantity(row["base_value"], of),
        quantity(row["new_value"], of),
        percent(row["ratio"]),
        code(proof) if proof else "",
    )
    return f"| {' | '.join(cells)} |"
