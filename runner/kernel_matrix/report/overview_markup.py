"""The overview as markup: everything a manager reads, complete without a script."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

import polars as pl

from kernel_matrix.analysis.comparison import FLAGGED, Change, Comparison
from kernel_matrix.report.contents import AuditFinding, ReportContents
from kernel_matrix.report.failure_groups import unexpected
from kernel_matrix.report.heat_map import overall
from kernel_matrix.report.markup import Html, element, joined
from kernel_matrix.report.number_format import DASH, GLYPHS, MEANINGS, bucket, number, rate, share, times
from kernel_matrix.report.overview import Overview, score_rows

_MOST_PROBLEMS: Final = 40
_MOST_GPUS: Final = 16
_ABREAST: Final = 12
"""Columns of heat maps that fit beside each other."""
_MOST_REASONS: Final = 10
_MOST_ROWS: Final = 15


def opening(contents: ReportContents) -> Html:
    """The section ``overview``."""
    if not contents.overview.outcomes:
        empty = (
            "These tables hold no results. Run cells with `kernel-matrix run`, merge them, and make the report again."
        )
        return element("section", element("p", empty, class_="statement"), id="overview")
    parts: list[Html] = [
        _headline(contents.overview),
        _block("What ran", _facts(contents.overview)),
        _block("How far to believe it", _trust(contents.overview, contents.findings)),
        _block("Right, and how fast", _scores(contents.overview)),
        _block("Where it runs", _portable(contents), wide=True),
        _block("What broke", _broke(contents), wide=True),
    ]
    if contents.comparison is not None:
        parts.insert(1, _block(f"Against {contents.comparison.base}", _compared(contents.comparison), wide=True))
    return element("section", *parts, id="overview")


def _block(title: str, inside: Html, *, wide: bool = False) -> Html:
    return element("div", element("h2", title), inside, class_="block wide" if wide else "block")


def _headline(seen: Overview) -> Html:
    whole = seen.scores.row(-1, named=True)
    aside = seen.cells - seen.counted
    figures = (
        (f"{seen.cells:,}", "cells", f"{number(seen.problems, 'problem')}, {number(seen.candidates, 'candidate')}"),
        (
            rate(whole["correct_rate"]),
            "correct",
            f"{seen.passed:,} of {seen.counted:,} that count"
            + (f"; {aside:,} {'does' if aside == 1 else 'do'} not" if aside else ""),
        ),
        (rate(whole["fast_1"]), "correct and faster than the baseline", "fast₁, of all that count"),
        (times(whole["speedup"]), "mean speed-up of the correct ones", f"geometric, {whole['timed']:,} timed"),
        (rate(whole["share_slower"]), "slower than the baseline", "of all that are timed"),
    )
    return element(
        "div",
        *(
            element("div", element("b", value), element("span", what), element("small", of), class_="figure")
            for value, what, of in figures
        ),
        class_="figures",
    )


def _facts(seen: Overview) -> Html:
    return element("dl", *(part for name, said in seen.ran for part in (element("dt", name), element("dd", said))))


def _trust(seen: Overview, findings: Sequence[AuditFinding] | None) -> Html:
    bars = [_bar(question, answers) for question, answers in seen.trust.items()]
    said = list(_trust_said(seen, findings))
    if not bars:
        bars = [element("p", "Nothing was timed.", class_="statement")]
    return joined(*bars, element("ul", *(element("li", line) for line in said)) if said else Html(""))


def _bar(question: str, answers: Sequence[tuple[str, int, int]]) -> Html:
    whole = sum(count for _, count, _ in answers)
    parts = (
        element("i", class_=f"part p{min(rank, 3)}", style=f"flex-grow:{count}", title=f"{word}: {count:,}")
        for word, count, rank in answers
    )
    said = ", ".join(f"{word} {share(count, whole)}" for word, count, _ in answers)
    return element(
        "div", element("span", question), element("div", *parts, class_="bar"), element("small", said), class_="meter"
    )


def _trust_said(seen: Overview, findings: Sequence[AuditFinding] | None) -> Iterator[str]:
    if seen.expected:
        controls = number(seen.expected, "outcome")
        yield f"{controls} failed exactly as declared: controls, which show that failures are seen."
    if seen.unexpected_passes:
        yield f"{number(seen.unexpected_passes, 'outcome')} passed although declared to fail: look at these first."
    if seen.odd_times:
        yield f"{number(seen.odd_times, 'speed-up')} of zero or infinity: in no mean."
    if findings is not None:
        if not findings:
            yield "The audit found nothing."
        for finding in findings[:_MOST_REASONS]:
            yield f"Audit, {finding.severity}: {finding.about} {number(finding.count, 'row')}."
        if len(findings) > _MOST_REASONS:
            yield f"{number(len(findings) - _MOST_REASONS, 'more audit check')} found something: see Answers, audit."


def _scores(seen: Overview) -> Html:
    head, rows = score_rows(seen)
    note = (
        "Shares are of cells that count: passed, or failed by the candidate's own fault. fast p×: correct and more than"
        " p times as fast as the baseline. Speed-up: geometric mean over what passed; slower: share of what was timed."
    )
    return joined(_table(head, rows, texts=head[:1]), element("p", note, class_="note"))


def _portable(contents: ReportContents) -> Html:
    rows = overall(contents.grid)
    gpus = rows["gpu"].unique().sort().to_list()[:_MOST_GPUS]
    problems = _telling(rows)
    by_place = {
        (row["problem"], row["gpu"]): row
        for row in rows.filter(pl.col("problem").is_in(problems)).iter_rows(named=True)
    }
    head = element("tr", element("th", "problem"), *(element("th", gpu or DASH, scope="col") for gpu in gpus))
    body = [
        element("tr", element("th", problem, scope="row"), *(_place(by_place.get((problem, gpu))) for gpu in gpus))
        for problem in problems
    ]
    beside = max(1, min(4, _ABREAST // (len(gpus) + 1), len(body) // 5))
    tables = [
        element(
            "table",
            element("thead", head),
            element("tbody", *body[start : start + -(-len(body) // beside)]),
            class_="heat",
        )
        for start in range(0, len(body), -(-len(body) // beside))
    ]
    cut = rows["problem"].n_unique() - len(problems)
    note = (
        "The best candidate that passed, of any dtype and toolchain, and its speed-up over the baseline on that GPU."
        + (
            f" {number(cut, 'problem')} more on the page Heat map: here are those that fail, then those with the widest"
            " difference between GPUs, then the slowest."
            if cut
            else ""
        )
    )
    legend = element(
        "p",
        *(
            element("span", element("b", GLYPHS[state]), f" {said}")
            for state, said in MEANINGS.items()
            if (rows["state"] == state).any()
        ),
        class_="legend",
    )
    return joined(
        element("p", contents.portability),
        element("div", *tables, class_="scroll maps"),
        legend,
        element("p", note, class_="note"),
    )


def _telling(rows: pl.DataFrame) -> list[str]:
    """The problems to show, by name: all, or those that say most."""
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
    return element("td", element("span", GLYPHS[state]), speed and f" {speed}", class_=kind, title=hint)


def _broke(contents: ReportContents) -> Html:
    rows = contents.failures
    if rows.is_empty():
        return element("p", "Nothing failed.", class_="statement")
    surprises = unexpected(rows)
    if surprises.is_empty():
        return element("p", "Everything that failed is declared to fail exactly so.", class_="statement")
    head = ("how it ended", "fault", "reason", "outcomes", "candidates", "GPUs")
    body = [
        (
            row["status"].replace("_", " "),
            row["fault"],
            row["reason"] or "no evidence",
            f"{row['outcomes'] - row['as_expected']:,}",
            f"{row['candidates']:,}",
            ", ".join(row["gpus"][:4]) + ("…" if len(row["gpus"]) > 4 else ""),
        )
        for row in surprises.head(_MOST_REASONS).iter_rows(named=True)
    ]
    more = surprises.height - len(body)
    expected = (
        f" {number(contents.overview.expected, 'outcome')} failed as declared and are not here."
        if contents.overview.expected
        else ""
    )
    note = (f"{number(more, 'more reason')} on the page Failures." if more else "") + expected
    table = _table(head, body, texts=("how it ended", "fault", "reason", "GPUs"))
    return joined(table, element("p", note, class_="note") if note else Html(""))


def _compared(found: Comparison) -> Html:
    counts = element(
        "div",
        *(
            element("div", element("b", f"{count:,}"), element("span", change.value.replace("_", " ")), class_="figure")
            for change, count in found.counts().items()
        ),
        class_="figures",
    )
    event = [element("p", str(found.event), class_="statement")] if found.event else []
    flagged = [change.value for change in (*FLAGGED, Change.ACCEPTED, Change.FIXED, Change.IMPROVEMENT)]
    rows = found.rows.filter(pl.col("change").cast(pl.String).is_in(flagged))
    head = ("what", "problem", "candidate", "dtype", "GPU", "toolchain", "reason", "new ÷ base", "95 % interval")
    body = [_changed(row) for row in rows.head(_MOST_ROWS).iter_rows(named=True)]
    more = f" {number(rows.height - len(body), 'more row')} under Answers, compare." if rows.height > len(body) else ""
    notes = element("p", f"{found.rules}.{more} {' '.join(found.notes)}", class_="note")
    table = [element("div", _table(head, body, texts=head[:7]), class_="scroll")] if body else []
    return joined(counts, *event, *table, notes)


def _changed(row: Mapping[str, Any]) -> tuple[str, ...]:
    names = (row[name] or DASH for name in ("problem", "candidate", "dtype", "gpu", "toolchain", "reason"))
    interval = f"{row['ratio_low']:.3f} to {row['ratio_high']:.3f}" if row["ratio_low"] is not None else DASH
    return (row["change"].replace("_", " "), *names, DASH if row["ratio"] is None else f"{row['ratio']:.3f}", interval)


def _table(head: Sequence[str], body: Sequence[Sequence[str]], *, texts: Collection[str]) -> Html:
    """A table; ``texts`` are the names of its columns that are text, all others are numbers."""
    kinds = ["text" if name in texts else "figure" for name in head]
    return element(
        "table",
        element(
            "thead",
            element(
                "tr", *(element("th", name, class_=kind, scope="col") for name, kind in zip(head, kinds, strict=True))
            ),
        ),
        element(
            "tbody",
            *(
                element("tr", *(element("td", text, class_=kind) for text, kind in zip(row, kinds, strict=True)))
                for row in body
            ),
        ),
        class_="plain",
    )
