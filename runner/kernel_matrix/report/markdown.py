"""Markdown for a pull request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any, Final

from kernel_matrix.analysis.comparison import Change, Comparison
from kernel_matrix.report.evidence import evidence, named, percent, quantity
from kernel_matrix.report.number_format import one_line

MOST_ROWS: Final = 50
"""Rows shown; a comment on a pull request holds at most 65,536 characters."""
_MOST_CHARACTERS: Final = 300
"""Characters of one row's evidence."""
_QUIET: Final = (Change.EQUIVALENT, Change.NEW, Change.BOTH_FAILED)


def comparison_markdown(comparison: Comparison, *, most: int = MOST_ROWS) -> str:
    """Write the flagged changes, the counts, the worst rows and the notes.

    Shows ``most`` rows and states the number of further ones. Names and messages stay plain text: no markup, links or
    mentions.
    """
    return "\n".join(_lines(comparison, most)) + "\n"


def _lines(comparison: Comparison, most: int) -> Iterator[str]:
    counts = comparison.counts()
    yield f"## {code(comparison.base)} → {code(comparison.new)}"
    yield ""
    if comparison.event is not None:
        yield f"> **{_text(str(comparison.event))}**"
        yield ""
    headline = comparison.headline
    yield f"**{_text(headline[:1].upper() + headline[1:])}.**"
    yield ""
    for one in comparison.overall[:1]:
        yield f"{_text(str(one))}."
        yield ""
    yield f"| {' | '.join(change.value.replace('_', ' ') for change in counts)} |"
    yield f"|{' ---: |' * len(counts)}"
    yield f"| {' | '.join(str(number) for number in counts.values())} |"
    yield ""
    yield from _worst(comparison, most)
    yield f"Rules: {_text(str(comparison.rules))}."
    yield from (f"- {_text(note)}" for note in comparison.notes)


def _worst(comparison: Comparison, most: int) -> Iterator[str]:
    loud = [row for row in comparison.rows.iter_rows(named=True) if Change(row["change"]) not in _QUIET]
    if not loud:
        return
    yield "| | what | where | base | new | change | evidence |"
    yield "| --- | --- | --- | ---: | ---: | ---: | --- |"
    for row in loud[:most]:
        yield _row(row, comparison)
    yield ""
    if len(loud) > most:
        yield f"… and {len(loud) - most} more rows."
        yield ""


def _row(row: Mapping[str, Any], comparison: Comparison) -> str:
    of = comparison.rules.of
    proof = evidence(row, of)
    cut = f"{proof[:_MOST_CHARACTERS]} …" if len(proof) > _MOST_CHARACTERS else proof
    cells = (
        row["change"].replace("_", " "),
        code(named(row)),
        code(f"{row['gpu']} {row['toolchain']}"),
        quantity(row["base_value"], of),
        quantity(row["new_value"], of),
        percent(row["ratio"]),
        code(cut) if cut else "",
    )
    return f"| {' | '.join(cells)} |"


def code(text: str) -> str:
    """Write a code span, in which Markdown makes neither links nor mentions."""
    return f"<code>{_text(text)}</code>"


def _text(text: str) -> str:
    """Replace every character that Markdown or HTML could read as markup by a character reference."""
    safe = escape(one_line(text))
    for mark in "\\`*_[]|~@":
        safe = safe.replace(mark, f"&#{ord(mark)};")
    return safe
