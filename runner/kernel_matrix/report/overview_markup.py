"""The overview as HTML, complete without a script."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final
from urllib.parse import quote

import polars as pl

from kernel_matrix.analysis.comparison import FLAGGED, Change, Comparison
from kernel_matrix.report.contents import AuditFinding, ReportContents
from kernel_matrix.report.failure_groups import REASON_HEAD, reason_cells, unexpected
from kernel_matrix.report.heat_map import overall
from kernel_matrix.report.markup import Html, element, joined, plain_table, scrolled
from kernel_matrix.report.number_format import DASH, GLYPHS, MEANINGS, bucket, number, rate, share, times
from kernel_matrix.report.overview import Overview, apart_notes, label_notes, score_rows
from kernel_matrix.report.question_pages import QuestionPage
from kernel_matrix.report.ratio_plot import PlottedRatio, ratio_plot
from kernel_matrix.report.rounds_and_money import RoundsAndMoney, rounds_and_money
from kernel_matrix.report.scaling_plot import scaling_plots
from kernel_matrix.report.short_answer import answer_in_words

_MOST_PROBLEMS: Final = 40
_MOST_GPUS: Final = 16
"""Columns of the grid."""
_COLUMNS: Final = 12
"""Columns that fit on the page when heat maps stand side by side."""
_MOST_REASONS: Final = 10
_MOST_ROWS: Final = 15
_GPUS: Final = "gpus"
_SCALING: Final = "scaling"
_ALL: Final = "all"
"""Row of the scores for all GPUs together."""
_PLOTTED: Final = ("limit", "category", "dtype")
"""Slices that are plotted, of a pair that has several of one kind."""
_LIMITS: Final = {"memory": "memory-bound", "compute": "compute-bound"}
"""Limits that are plotted, and their labels."""
_MOST_PLOTS: Final = 4
_MOST_TOLD: Final = 2
"""Statements about pairs of GPUs that are not folded."""
_MOST_SLICES: Final = 12


def overview_section(
    contents: ReportContents, questions: Sequence[QuestionPage] = (), generated: RoundsAndMoney | None = None
) -> Html:
    """Write the section ``overview``; of ``questions``, the answers to ``gpus`` and ``scaling`` are on it."""
    if not contents.overview.outcomes:
        empty = (
            "These tables hold no results. Run cells with `kernel-matrix run`, merge them, and make the report again."
        )
        return element("section", element("p", empty, class_="statement"), id="overview")
    parts: list[Html] = [
        _in_words(contents, questions),
        _headline(contents.overview),
        _block("What ran", _facts(contents.overview)),
        _block("How far to trust it", _trust(contents.overview, contents.findings)),
        _block("Correctness and speed", _scores(contents.overview)),
        *([_block("Rounds and money", rounds_and_money(generated), wide=True)] if generated else []),
        _block("Where it runs", _portable(contents), wide=True),
        _block("What broke", _broke(contents), wide=True),
    ]
    over_ranks = next((one for one in questions if one.question == _SCALING and not one.statement), None)
    if over_ranks is not None:
        parts.insert(-2, _block("Over numbers of ranks", scaling_plots(over_ranks.answers[0].table), wide=True))
    against = next((one for one in questions if one.question == _GPUS and not one.statement), None)
    if against is not None:
        parts.insert(2, _block("GPU against GPU", _gpu_ratios(against), wide=True))
    if contents.comparison is not None:
        parts.insert(2, _block(f"Against {contents.comparison.base}", _compared(contents.comparison), wide=True))
    return element("section", *parts, id="overview")


def _block(title: str, inside: Html, *, wide: bool = False) -> Html:
    return element("div", element("h2", title), inside, class_="block wide" if wide else "block")


def _in_words(contents: ReportContents, questions: Sequence[QuestionPage]) -> Html:
    pairs = ((element("dt", asked), element("dd", said)) for asked, said in answer_in_words(contents, questions))
    return element(
        "div", element("h2", "In short"), element("dl", *chain.from_iterable(pairs)), class_="block wide short"
    )


def _headline(overview: Overview) -> Html:
    whole = overview.scores.row(-1, named=True)
    aside = overview.cells - overview.counted
    timed = f"{whole['timed']:,}"
    tested = f"{number(overview.problems, 'problem')}, {number(overview.candidates, 'candidate')}"
    figures = (
        (f"{overview.cells:,}", "cells", tested, ""),
        (
            rate(whole["correct_rate"]),
            "correct",
            f"{overview.passed:,} of {overview.counted:,} that count"
            + (f"; {aside:,} {'does' if aside == 1 else 'do'} not" if aside else ""),
            "status=passed",
        ),
        (
            times(whole["speedup"]),
            "mean speed-up of the correct ones",
            f"geometric, over problems; {timed} timed",
            "status=passed speedup!=null",
        ),
        (
            rate(whole["share_faster"]),
            "faster than the baseline",
            "by verdict, of all that are timed",
            "verdict=faster",
        ),
        (
            rate(whole["share_slower"]),
            "slower than the baseline",
            "by verdict, of all that are timed",
            "verdict=slower",
        ),
    )
    kind = "kind=candidate " if overview.apart else ""
    linked = ((value, what, of, f"{kind}{rows}") for value, what, of, rows in figures)
    return element("div", *(_figure(*figure) for figure in linked), class_="figures")


def _rows(**terms: str | None) -> str:
    """Write the address of the cells with these values; what a filter cannot hold becomes a wildcard."""
    values = {name: re.sub(r'[",]', "?", value) for name, value in terms.items() if value is not None}
    said = (f'{name}="{value}"' if re.search(r"\s", value) else f"{name}={value}" for name, value in values.items())
    return f"#cells/{quote(' '.join(said), safe='=!')}"


def _figure(value: str, what: str, of: str, rows: str) -> Html:
    """Write a number that links to the rows that it counts."""
    link = element("a", value, href=f"#cells/{quote(rows.strip(), safe='=!')}")
    return element("div", element("b", link), element("span", what), element("small", of), class_="figure")


def _facts(overview: Overview) -> Html:
    pairs = ((element("dt", name), element("dd", values)) for name, values in overview.ran)
    return element("dl", *chain.from_iterable(pairs))


def _trust(overview: Overview, findings: Sequence[AuditFinding] | None) -> Html:
    kind = "kind=candidate " if overview.apart else ""
    bars = [_bar(question, answers, kind) for question, answers in overview.trust.items()]
    lines = [element("li", line) for line in _trust_notes(overview, findings)]
    if not bars:
        bars = [element("p", "Nothing was timed.", class_="statement")]
    return joined(*bars, element("ul", *lines) if lines else "")


_QUALITIES: Final = ("good", "fair", "poor")
"""Colours of the best answer, the next, and all others."""


_TRUST_COLUMNS: Final = {"Grade": "grade", "Alone on the GPU": "exclusive", "Clocks": "clock_state"}
_SESSIONS: Final = {"1 session": "sessions=1", "2 to 4 sessions": "sessions>1 sessions<5", "5 or more": "sessions>4"}


def _trusted_rows(question: str, word: str, kind: str) -> str | None:
    """Write the address of the timed cells with this answer; None if no filter finds them."""
    if word == "unknown":
        return None
    term = f"{_TRUST_COLUMNS[question]}={word.replace(' ', '?')}" if question in _TRUST_COLUMNS else _SESSIONS[word]
    return f"#cells/{quote(f'{kind}speedup!=null {term}', safe='=!')}"


def _bar(question: str, answers: Sequence[tuple[str, int, int]], kind: str) -> Html:
    whole = sum(count for _, count, _ in answers)
    parts = (
        element("i", class_=f"part {_QUALITIES[min(rank, 2)]}", style=f"flex-grow:{count}", title=f"{word}: {count:,}")
        for word, count, rank in answers
    )
    shares = [
        element("a", f"{word} {share(count, whole)}", href=_trusted_rows(question, word, kind))
        for word, count, _ in answers
    ]
    said = joined(*[part for one in shares for part in (", ", one)][1:])
    bar = element("div", *parts, class_="bar")
    return element("div", element("span", question), bar, element("small", said), class_="meter")


def _trust_notes(overview: Overview, findings: Sequence[AuditFinding] | None) -> Iterator[str]:
    yield from apart_notes(overview)
    if overview.unexpected_passes:
        yield f"{number(overview.unexpected_passes, 'outcome')} passed although declared to fail: look at these first."
    if overview.odd_times:
        yield f"{number(overview.odd_times, 'speed-up')} of zero or infinity: in no mean."
    yield from (f"{label}, {text}" for label, text in label_notes(overview))
    if findings is not None:
        if not findings:
            yield "The audit found nothing."
        for finding in findings[:_MOST_REASONS]:
            yield f"Audit, {finding.severity}: {finding.about} {number(finding.count, 'row')}."
        if len(findings) > _MOST_REASONS:
            yield f"{number(len(findings) - _MOST_REASONS, 'more audit check')} found something: see Answers, audit."


def _scores(overview: Overview) -> Html:
    head, rows = score_rows(overview)
    note = (
        "Shares are of cells that count: passed, or failed by the candidate's own fault; controls and references are in"
        " none. fast p×: correct and more than p times as fast as the baseline, by the ratio alone. Speed-up: geometric"
        " mean over what passed, each problem alike; faster and slower: shares of what was timed, by verdict."
    )
    table = plain_table(head, list(_linked_scores(overview, rows)), texts=head[:1])
    return joined(scrolled("Scores", table), element("p", note, class_="note"))


def _linked_scores(overview: Overview, rows: Sequence[tuple[str, ...]]) -> Iterator[list[str]]:
    """Make those figures of the scores links that a filter of the cells selects."""
    kind = {"kind": "candidate"} if overview.apart else {}
    selected: dict[int, dict[str, str]] = {
        0: {}, 4: {"status": "passed"}, -2: {"verdict": "faster"}, -1: {"verdict": "slower"},
    }  # fmt: skip
    for row, gpu in zip(rows, overview.scores["gpu"], strict=True):
        place = {"gpu": gpu} if gpu is not None and gpu != _ALL else {}
        linked: list[str] = list(row)
        for column, terms in selected.items():
            linked[column] = element("a", row[column], href=_rows(**kind, **place, **terms))
        yield linked


def _portable(contents: ReportContents) -> Html:
    rows = overall(contents.grid)
    gpus = rows["gpu"].unique().sort().to_list()[:_MOST_GPUS]
    problems = _choose_problems(rows)
    by_place = {
        (row["problem"], row["gpu"]): row
        for row in rows.filter(pl.col("problem").is_in(problems)).iter_rows(named=True)
    }
    head = element("tr", element("th", "problem"), *(element("th", gpu or DASH, scope="col") for gpu in gpus))
    body = [
        element("tr", element("th", problem, scope="row"), *(_place(by_place.get((problem, gpu))) for gpu in gpus))
        for problem in problems
    ]
    beside = max(1, min(4, _COLUMNS // (len(gpus) + 1), len(body) // 5))
    tables = [
        element(
            "table",
            element("thead", head),
            element("tbody", *body[start : start + -(-len(body) // beside)]),
            class_="heat",
        )
        for start in range(0, len(body), -(-len(body) // beside))
    ]
    more = rows["problem"].n_unique() - len(problems)
    note = "The best candidate that passed, of any dtype and toolchain, and its speed-up over the baseline on that GPU."
    if more:
        note += (
            f" {number(more, 'problem')} more on the page Heat map: here are those that fail, then those with the"
            " widest difference between GPUs, then the slowest."
        )
    legend = (
        element("span", element("b", GLYPHS[state]), f" {meaning}")
        for state, meaning in MEANINGS.items()
        if (rows["state"] == state).any()
    )
    return joined(
        element("p", contents.portability),
        scrolled("GPU × problem", *tables, class_="scroll maps"),
        element("p", *legend, class_="legend"),
        element("p", note, class_="note"),
    )


def _choose_problems(rows: pl.DataFrame) -> list[str]:
    """Choose the problems to show, by name: failing ones, then those that differ most between GPUs."""
    log = pl.col("best").filter(pl.col("best").is_finite() & (pl.col("best") > 0)).log()
    ranked = (
        rows.group_by("problem")
        .agg(
            (pl.col("state") == "failed").any().alias("fails"),
            (log.max() - log.min()).alias("width"),
            log.min().alias("low"),
        )
        .sort("fails", "width", "low", "problem", descending=[True, True, False, False], nulls_last=True)
        .head(_MOST_PROBLEMS)
    )
    return sorted(ranked["problem"].drop_nulls().to_list())


def _place(row: Mapping[str, Any] | None) -> Html:
    if row is None:
        return element("td", class_="none", title="no cell")
    state = row["state"]
    speed = times(row["best"]) if row["best"] is not None else ""
    hint = f"{MEANINGS[state]}; {row['passed']} of {row['candidates']} candidates pass" + (
        f"; {row['best_candidate']}, grade {row['grade'] or DASH}" if row["best_candidate"] else ""
    )
    kind = bucket(row["best"]) if state not in ("failed", "uncounted") else state
    link = element(
        "a", element("span", GLYPHS[state]), speed and f" {speed}", href=_rows(problem=row["problem"], gpu=row["gpu"])
    )
    return element("td", link, class_=kind, title=hint)


def _gpu_ratios(page: QuestionPage) -> Html:
    """Write the answer in words, a plot of the first GPU against all others, and one for each of its first pairs."""
    answers = {answer.name: answer for answer in page.answers}
    whole, slices = answers[_GPUS].table, answers["slices"].table
    statements = [element("p", line) for line in answers[_GPUS].statements]
    told, more = statements[:_MOST_TOLD], statements[_MOST_TOLD:]
    # The first row of a pair is its headline; pairs of the first GPU come first.
    pairs = whole.unique(["gpu", "than"], keep="first", maintain_order=True)
    pairs = pairs.filter(pl.col("gpu") == pairs["gpu"][0])
    plots = []
    if pairs.height > 1:
        plotted = [_plotted(row["than"], row) for row in pairs.head(_MOST_SLICES).iter_rows(named=True)]
        plots.append(ratio_plot(f"{pairs['gpu'][0]} against the others", plotted))
    limit = pl.col("by") == _PLOTTED[0]
    plottable = slices.filter(pl.col("by").is_in(_PLOTTED) & (~limit | pl.col("value").is_in(list(_LIMITS))))
    for pair in pairs.head(_MOST_PLOTS).iter_rows(named=True):
        ends = (pl.col("gpu") == pair["gpu"]) & (pl.col("than") == pair["than"]) & (pl.col("kind") == pair["kind"])
        rows = plottable.filter(ends).filter(limit | (pl.len().over("by") > 1))
        shown = rows.filter(pl.col("problems").rank("ordinal", descending=True).over("by") <= _MOST_SLICES)
        shown = shown.sort(pl.col("by").cast(pl.Enum(_PLOTTED)), maintain_order=True)
        plotted = [_plotted("all", pair), *(_plotted(row["value"], row) for row in shown.iter_rows(named=True))]
        if len(plotted) > 1 or pairs.height == 1:
            plots.append(ratio_plot(f"{pair['gpu']} against {pair['than']}: {pair['kind']}", plotted))
    note = "Each problem counts once. All pairs, sizes and languages, and what falls short: the page Answers, gpus."
    further = [element("details", element("summary", "More pairs"), *more)] if more else []
    return joined(*told, *further, element("div", *plots, class_="pair"), element("p", note, class_="note"))


def _plotted(label: str, row: Mapping[str, Any]) -> PlottedRatio:
    limited = row.get("by") == _PLOTTED[0]
    predictions = {name: row[name] for name in _LIMITS if not limited or name == label}
    shown = _LIMITS[label] if limited else label
    return PlottedRatio(label=shown, ratio=row["ratio"], low=row["low"], high=row["high"], **predictions)


def _broke(contents: ReportContents) -> Html:
    rows = contents.failures
    if rows.is_empty():
        return element("p", "Nothing failed.", class_="statement")
    surprises = unexpected(rows)
    if surprises.is_empty():
        return element("p", "Everything that failed is declared to fail in this way.", class_="statement")
    body = [
        (_status_link(row), *reason_cells(row)[1:], ", ".join(row["gpus"][:4]) + ("…" if len(row["gpus"]) > 4 else ""))
        for row in surprises.head(_MOST_REASONS).iter_rows(named=True)
    ]
    notes = []
    if surprises.height > len(body):
        notes.append(f"{number(surprises.height - len(body), 'more reason')} on the page Failures.")
    if contents.overview.expected:
        notes.append(f"{number(contents.overview.expected, 'outcome')} failed as declared and are not listed.")
    table = plain_table((*REASON_HEAD, "GPUs"), body, texts=(*REASON_HEAD[:3], "GPUs"))
    return joined(scrolled("What broke", table), element("p", " ".join(notes), class_="note") if notes else "")


def _status_link(row: Mapping[str, Any]) -> Html:
    return element("a", reason_cells(row)[0], href=_rows(status=row["status"], fault=row["fault"]))


def _compared(found: Comparison) -> Html:
    counts = element(
        "div",
        *(
            element("div", element("b", f"{count:,}"), element("span", change.value.replace("_", " ")), class_="figure")
            for change, count in found.counts().items()
        ),
        class_="figures",
    )
    told = [found.headline, *(str(one) for one in found.overall[:1]), *([str(found.event)] if found.event else [])]
    statements = [element("p", text, class_="statement") for text in told]
    flagged = [change.value for change in (*FLAGGED, Change.ACCEPTED, Change.FIXED, Change.IMPROVEMENT)]
    rows = found.rows.filter(pl.col("change").cast(pl.String).is_in(flagged))
    head = ("what", "problem", "candidate", "dtype", "GPU", "toolchain", "reason", "new ÷ base", "95 % interval")
    body = [_changed(row) for row in rows.head(_MOST_ROWS).iter_rows(named=True)]
    more = f" {number(rows.height - len(body), 'more row')} under Answers, compare." if rows.height > len(body) else ""
    notes = element("p", f"{found.rules}.{more} {' '.join(found.notes)}", class_="note")
    table = [scrolled("Changes", plain_table(head, body, texts=head[:7]))] if body else []
    return joined(*statements, counts, *table, notes)


def _changed(row: Mapping[str, Any]) -> tuple[str, ...]:
    names = (row[name] or DASH for name in ("problem", "candidate", "dtype", "gpu", "toolchain", "reason"))
    interval = f"{row['ratio_low']:.3f} to {row['ratio_high']:.3f}" if row["ratio_low"] is not None else DASH
    return (row["change"].replace("_", " "), *names, DASH if row["ratio"] is None else f"{row['ratio']:.3f}", interval)
