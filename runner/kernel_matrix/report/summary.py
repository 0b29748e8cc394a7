"""Short reports: Markdown for a pull request, and text for a terminal."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import polars as pl

from kernel_matrix.analysis.tables import Tables
from kernel_matrix.report.contents import ReportContents
from kernel_matrix.report.failure_groups import REASON_HEAD, reason_cells, unexpected
from kernel_matrix.report.heat_map import overall
from kernel_matrix.report.markdown import comparison_markdown
from kernel_matrix.report.markdown_text import code
from kernel_matrix.report.number_format import DASH, GLYPHS, MEANINGS, number, one_line, rate, share, times
from kernel_matrix.report.overview import apart_notes, label_notes, score_rows

_MOST_REASONS: Final = 10
_MOST_PROBLEMS: Final = 30
_MOST_GPUS: Final = 8
_LONGEST: Final = 120
"""Characters of a reason."""

Row = tuple[str, ...]


def markdown(contents: ReportContents, _tables: Tables, _found: pl.DataFrame) -> str:
    """Write the summary, scores per GPU, failures, and the map GPU × problem; no links or HTML from records."""
    parts = [f"## {_md(contents.title)}", "", *(_md(line) for line in _sentences(contents))]
    if contents.overview.outcomes:
        parts += ["", *_md_table(*score_rows(contents.overview), texts=1)]
        if contents.comparison is not None:
            parts += ["", comparison_markdown(contents.comparison)]
        parts += ["", "### What broke", "", *_broke(contents, _md_table)]
        if contents.overview.labels:
            notes = label_notes(contents.overview)
            parts += ["", "### Labels", "", *(f"- {_md(label)}, {text}" for label, text in notes)]
        parts += ["", "<details><summary>GPU × problem</summary>", "", *_md_table(*_map(contents), texts=1), ""]
        parts += [_legend(contents), "", "</details>"]
    return "\n".join(parts) + "\n"


def text(contents: ReportContents, _tables: Tables, _found: pl.DataFrame) -> str:
    """Write the same in columns, without control characters."""
    parts = [one_line(contents.title), "", *(one_line(line) for line in _sentences(contents))]
    if contents.overview.outcomes:
        parts += ["", *(f"{name + ':':<12}{one_line(values)}" for name, values in contents.overview.ran)]
        parts += ["", *_text_table(*score_rows(contents.overview), texts=1)]
        parts += ["", *_text_table(*_map(contents), texts=1), _legend(contents)]
        parts += ["", *_broke(contents, _text_table)]
        parts += ["", *(f"{one_line(label)}, {text}" for label, text in label_notes(contents.overview))]
        parts += ["", *map(one_line, _compared(contents))]
    return "\n".join(parts) + "\n"


def _sentences(contents: ReportContents) -> Iterator[str]:
    overview = contents.overview
    if not overview.outcomes:
        yield "These tables hold no results."
        return
    aside = overview.cells - overview.counted
    whole = overview.scores.row(-1, named=True)
    yield (
        f"{number(overview.cells, 'cell')}: {overview.passed:,} of {overview.counted:,} that count are correct"
        f" ({share(overview.passed, overview.counted)}); geometric-mean speed-up of the correct ones"
        f" {times(whole['speedup'])} ({whole['timed']:,} timed, each problem alike):"
        f" {rate(whole['share_faster'])} faster and {rate(whole['share_slower'])} slower than the baseline, by verdict."
        + (f" {number(aside, 'cell')} {'does' if aside == 1 else 'do'} not count." if aside else "")
    )
    yield from apart_notes(overview)
    yield contents.portability
    for question, answers in overview.trust.items():
        timed = sum(count for _, count, _ in answers)
        yield f"{question}: {', '.join(f'{word} {share(count, timed)}' for word, count, _ in answers)}."
    if overview.unexpected_passes:
        yield f"{number(overview.unexpected_passes, 'outcome')} passed although declared to fail."
    if contents.findings:
        yield f"Audit: {', '.join(f'{one.check} ({one.severity}, {one.count:,})' for one in contents.findings)}."


def _map(contents: ReportContents) -> tuple[Row, list[Row]]:
    rows = overall(contents.grid)
    gpus = rows["gpu"].unique().sort().to_list()[:_MOST_GPUS]
    problems = rows["problem"].unique().sort().to_list()
    found = {
        (row["problem"], row["gpu"]): f"{GLYPHS[row['state']]} {times(row['best'])}"
        if row["best"] is not None
        else GLYPHS[row["state"]]
        for row in rows.filter(pl.col("problem").is_in(problems[:_MOST_PROBLEMS])).iter_rows(named=True)
    }
    body = [(name or DASH, *(found.get((name, gpu), "") for gpu in gpus)) for name in problems[:_MOST_PROBLEMS]]
    if len(problems) > _MOST_PROBLEMS:
        body.append((f"… {len(problems) - _MOST_PROBLEMS:,} more", *("" for _ in gpus)))
    return ("problem", *(gpu or DASH for gpu in gpus)), body


def _legend(contents: ReportContents) -> str:
    present = set(contents.grid["state"])
    return "; ".join(f"{GLYPHS[state]} {meaning}" for state, meaning in MEANINGS.items() if state in present)


def _broke(contents: ReportContents, write_table: Callable[..., list[str]]) -> Iterator[str]:
    """Yield the table of unexpected failures, and notes on the others."""
    groups = unexpected(contents.failures)
    rows: list[Row] = []
    for row in groups.head(_MOST_REASONS).iter_rows(named=True):
        status, fault, reason, *counts = reason_cells(row)
        rows.append((status, fault, reason[:_LONGEST], *counts))
    notes = ["Nothing failed."] if contents.failures.is_empty() else []
    more = groups.height - _MOST_REASONS
    if more > 0:
        notes.append(f"{number(more, 'more reason')} {'is' if more == 1 else 'are'} on the HTML page.")
    if contents.overview.expected:
        notes.append(f"{number(contents.overview.expected, 'outcome')} failed exactly as declared (controls).")
    if rows:
        yield from write_table(REASON_HEAD, rows, texts=3)
    if rows and notes:
        yield ""
    yield from notes


def _compared(contents: ReportContents) -> Iterator[str]:
    found = contents.comparison
    if found is None:
        return
    counts = ", ".join(f"{count:,} {change.value.replace('_', ' ')}" for change, count in found.counts().items())
    yield f"Against {one_line(found.base)}: {counts or 'nothing to compare'}."
    if found.event:
        yield str(found.event)
    yield from found.notes


def _md(text: str) -> str:
    """Write ``text`` as Markdown that shows it unchanged; possible markup, links and mentions become code."""
    line = one_line(text)
    harmless = re.fullmatch(r"[\w .,;:×%–+/()=?▲▼◆✓✕·…-]*", line) and "_" not in line and "://" not in line
    return line if harmless else code(line)


def _md_table(head: Row, rows: Sequence[Row], *, texts: int) -> list[str]:
    rule = (":--" if place < texts else "--:" for place in range(len(head)))
    return [
        f"| {' | '.join(_md(name) for name in head)} |",
        f"| {' | '.join(rule)} |",
        *(f"| {' | '.join(_md(cell) for cell in row)} |" for row in rows),
    ]


def _text_table(head: Row, rows: Sequence[Row], *, texts: int) -> list[str]:
    lines = [tuple(one_line(cell) for cell in row) for row in (head, *rows)]
    widths = [max(len(line[place]) for line in lines) for place in range(len(head))]
    return [
        "  ".join(
            cell.ljust(width) if place < texts else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
