"""A report without a page: Markdown for a pull request, and text for a terminal."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

import polars as pl

from kernel_matrix.analysis.tables import Tables
from kernel_matrix.report.contents import ReportContents
from kernel_matrix.report.failure_groups import unexpected
from kernel_matrix.report.heat_map import overall
from kernel_matrix.report.markdown import code, comparison_markdown
from kernel_matrix.report.number_format import DASH, GLYPHS, MEANINGS, number, one_line, rate, share, times
from kernel_matrix.report.overview import score_rows

_MOST_REASONS: Final = 10
_MOST_PROBLEMS: Final = 30
_MOST_GPUS: Final = 8
_LONGEST: Final = 120

Row = tuple[str, ...]


def markdown(contents: ReportContents, _tables: Tables, _found: pl.DataFrame) -> str:
    """The summary, scores per GPU, what broke, and the map GPU × problem folded away; no links, no HTML of others."""
    parts = [f"## {_md(contents.title)}", "", *(_md(line) for line in _sentences(contents))]
    if contents.overview.outcomes:
        parts += ["", *_md_table(*score_rows(contents.overview), texts=1)]
        parts += ["", *_compared_md(contents), "### What broke", "", *_broke_md(contents)]
        parts += ["", "<details><summary>GPU × problem</summary>", "", *_md_table(*_map(contents), texts=1), ""]
        parts += [_legend(contents), "", "</details>"]
    return "\n".join(parts) + "\n"


def text(contents: ReportContents, _tables: Tables, _found: pl.DataFrame) -> str:
    """The same in columns; nothing in it that a terminal obeys."""
    parts = [one_line(contents.title), "", *(one_line(line) for line in _sentences(contents))]
    if contents.overview.outcomes:
        parts += ["", *(f"{name + ':':<12}{one_line(said)}" for name, said in contents.overview.ran)]
        parts += ["", *_text_table(*score_rows(contents.overview), texts=1)]
        parts += ["", *_text_table(*_map(contents), texts=1), _legend(contents)]
        parts += ["", *_broke_text(contents)]
        parts += ["", *_compared(contents)]
    return "\n".join(parts) + "\n"


def _sentences(contents: ReportContents) -> Iterator[str]:
    seen = contents.overview
    if not seen.outcomes:
        yield "These tables hold no results."
        return
    aside = seen.cells - seen.counted
    whole = seen.scores.row(-1, named=True)
    yield (
        f"{number(seen.cells, 'cell')}: {seen.passed:,} of {seen.counted:,} that count are correct"
        f" ({share(seen.passed, seen.counted)}), {rate(whole['fast_1'])} correct and faster than the baseline;"
        f" geometric-mean speed-up of the correct ones {times(whole['speedup'])} ({whole['timed']:,} timed)."
        + (f" {number(aside, 'cell')} {'does' if aside == 1 else 'do'} not count." if aside else "")
    )
    yield contents.portability
    for question, answers in seen.trust.items():
        timed = sum(count for _, count, _ in answers)
        yield f"{question}: {', '.join(f'{word} {share(count, timed)}' for word, count, _ in answers)}."
    if seen.unexpected_passes:
        yield f"{number(seen.unexpected_passes, 'outcome')} passed although declared to fail."
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
    return "; ".join(f"{GLYPHS[state]} {said}" for state, said in MEANINGS.items() if state in present)


def _reasons(contents: ReportContents) -> tuple[Row, list[Row]]:
    rows: list[Row] = [
        (
            row["status"].replace("_", " "),
            row["fault"],
            (row["reason"] or "no evidence")[:_LONGEST],
            f"{row['outcomes'] - row['as_expected']:,}",
            f"{row['candidates']:,}",
        )
        for row in unexpected(contents.failures).head(_MOST_REASONS).iter_rows(named=True)
    ]
    return ("how it ended", "fault", "reason", "outcomes", "candidates"), rows


def _broke(contents: ReportContents) -> Iterator[str]:
    if contents.failures.is_empty():
        yield "Nothing failed."
    more = unexpected(contents.failures).height - _MOST_REASONS
    if more > 0:
        yield f"{number(more, 'more reason')} {'is' if more == 1 else 'are'} on the HTML page."
    if contents.overview.expected:
        yield f"{number(contents.overview.expected, 'outcome')} failed exactly as declared (controls)."


def _broke_md(contents: ReportContents) -> list[str]:
    head, rows = _reasons(contents)
    return [*(_md_table(head, rows, texts=3) if rows else []), "", *_broke(contents)]


def _broke_text(contents: ReportContents) -> list[str]:
    head, rows = _reasons(contents)
    return [*(_text_table(head, rows, texts=3) if rows else []), *_broke(contents)]


def _compared(contents: ReportContents) -> list[str]:
    found = contents.comparison
    if found is None:
        return []
    counts = ", ".join(f"{count:,} {change.value.replace('_', ' ')}" for change, count in found.counts().items())
    said = [
        f"Against {one_line(found.base)}: {counts or 'nothing to compare'}.",
        *([str(found.event)] if found.event else []),
    ]
    return [one_line(line) for line in (*said, *found.notes)]


def _compared_md(contents: ReportContents) -> list[str]:
    found = contents.comparison
    if found is None:
        return []
    return [comparison_markdown(found), ""]


def _md(said: str) -> str:
    """``said`` as Markdown that shows it as it is; what could be markup, a link or a mention becomes code."""
    text = one_line(said)
    return text if _harmless(text) else code(text)


def _harmless(said: str) -> bool:
    return re.fullmatch(r"[\w .,;:×%–+/()=?▲▼◆✓✕·…-]*", said) is not None and "_" not in said and "://" not in said


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
