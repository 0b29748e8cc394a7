"""One self-contained HTML file: styles, scripts, data, and an overview that needs no script.

The content security policy allows no network access and, by hash, only two scripts: the page's own and the chart
library, which runs when the first chart is opened. A script injected through a record does not run.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from importlib import resources
from typing import Any, Final

import polars as pl

from kernel_matrix.analysis.outcomes import CELL_KEY
from kernel_matrix.analysis.questions import Answer
from kernel_matrix.analysis.tables import Tables
from kernel_matrix.errors import StoreError, UsageError
from kernel_matrix.report import cell_choice, failure_groups
from kernel_matrix.report.column_data import embed_json, encode_columns
from kernel_matrix.report.contents import MOST_PLACES, PageDetails, ReportContents, gather_details
from kernel_matrix.report.markup import Html, element, raw
from kernel_matrix.report.number_format import GLYPHS, MEANINGS
from kernel_matrix.report.overview import Overview
from kernel_matrix.report.overview_markup import overview_section
from kernel_matrix.report.question_pages import QuestionPage, cut_rows
from kernel_matrix.results.labels import LABELS, describe_label
from kernel_matrix.results.store import replace_document
from kernel_matrix.user_folders import cache_root

_SCRIPTS: Final = ("base", "table", "heat", "charts", "problem", "cell", "site", "pages")
"""Files of the page's script, in order; together they are one function."""
_PAGES: Final = (
    ("overview", "Overview"),
    ("leaders", "Leaderboard"),
    ("heat", "Heat map"),
    ("gpus", "GPUs"),
    ("cells", "All cells"),
    ("failures", "Failures"),
    ("roofline", "Roofline"),
    ("cascade", "Cascade"),
    ("noise", "Noise"),
    ("drift", "Drift"),
    ("answers", "Answers"),
)

MOST_LEADERS: Final = 10_000
"""Rows of the leaderboard of candidates."""
_SOURCES_NOTE: Final = (
    "Sources are found through the matrix that a run names, or the one given with --matrix, and shown where they are as"
    " they were measured."
)


def page(contents: ReportContents, tables: Tables, found: pl.DataFrame) -> str:
    """Write the HTML file; ``found`` are the outcomes that ``contents`` is made of.

    Raises:
        UsageError: The chart library is not installed.
    """
    library = chart_library()
    return assemble(contents, gather_details(tables, found, contents), library)


def assemble(
    contents: ReportContents, details: PageDetails, library: str, *, site: Mapping[str, Any] | None = None
) -> str:
    """Write the file from ``contents`` and ``details``, with the chart ``library`` inside.

    The page of a ``site`` may read further files of its own server; see :mod:`kernel_matrix.report.site`.
    """
    script = own_script()
    digests = (hashlib.sha256(text.encode()).digest() for text in (script, library))
    allowed = " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
    connected = "" if site is None else "connect-src 'self'; "
    policy = (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; "
        f"{connected}base-uri 'none'; form-action 'none'"
    )
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="referrer", content="no-referrer"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", contents.title),
        raw("style", _read("page.css")),
    )
    overview = overview_section(contents, details.questions, details.generated)
    body = element(
        "body",
        _header(contents, _shown_pages(contents, details)),
        element("main", overview, element("div", id="page", hidden=""), id="main"),
        element("footer", _footer(contents)),
        raw("script", embed_json({**_data(contents, details), "site": site}), type="application/json", id="data"),
        raw("script", library, type="text/plain", id="library"),
        raw("script", script),
    )
    return f"<!doctype html>\n{element('html', head, body, lang='en')}\n"


def chart_library() -> str:
    """Return the JavaScript of Vega, Vega-Lite and Vega-Embed.

    Raises:
        UsageError: It is not installed.
    """
    try:
        import vl_convert  # noqa: PLC0415  # an extra, of 80 MB
    except ImportError:
        raise UsageError(
            "the HTML report needs the package vl-convert-python, which is not installed",
            next_step="Run `pip install 'kernel-matrix[report]'`, or use --format md or --format text.",
        ) from None
    # Bundling takes a second or two, and gives the same text every time.
    version: str = vl_convert.__version__  # type: ignore[attr-defined]  # its stub leaves it out
    kept = cache_root() / "report" / f"charts-{version}.js"
    with suppress(OSError, UnicodeDecodeError):
        return kept.read_text(encoding="utf-8")
    bundle: str = vl_convert.javascript_bundle()  # type: ignore[call-arg]  # its stub has no defaults
    library = f"(() => {{{bundle}\n}})();"
    with suppress(StoreError):
        replace_document(kept, library)
    return library


@cache
def own_script() -> str:
    """Return the page's own script: the files of ``static`` in one function, so that it defines no globals."""
    parts = "\n".join(_read(f"{name}.js") for name in _SCRIPTS)
    return f"(() => {{\n'use strict';\n{parts}\n}})();"


def _read(name: str) -> str:
    return (resources.files("kernel_matrix.report") / "static" / name).read_text(encoding="utf-8")


def _shown_pages(contents: ReportContents, details: PageDetails) -> dict[str, str]:
    """Choose the pages that have something to show: name in the address → title."""
    gpus = details.cells["gpu"].n_unique()
    roofs = details.cells.select((pl.col("intensity") > 0) & (pl.col("tflops_per_s") > 0)).to_series().any()
    filled = {
        "heat": contents.grid.height,
        "cells": details.cells.height,
        "failures": contents.failures.height,
        "roofline": roofs,
        "leaders": details.leaderboard.candidates.height,
        "gpus": gpus > 1,
        "cascade": gpus > 1,
        "noise": details.spreads.height,
        "drift": details.nights.height,
    }
    return {name: title for name, title in _PAGES if filled.get(name, True)}


def _header(contents: ReportContents, pages: Mapping[str, str]) -> Html:
    links = (
        element("a", title, href=f"#{name}", data_page=name, aria_current="page" if name == "overview" else None)
        for name, title in pages.items()
    )
    return element(
        "header",
        element("h1", contents.title),
        element("nav", *links, aria_label="Pages"),
        element("button", "Dark", id="theme", type="button", title="Switch between light and dark", hidden=""),
        element("p", "Without JavaScript only the overview is shown.", id="scriptless", class_="note"),
    )


def _footer(contents: ReportContents) -> str:
    return (
        f"kernel-matrix report, made {contents.made_at:%Y-%m-%d %H:%M} UTC from {', '.join(contents.folders)}."
        " Nothing on this page is loaded from a network."
    )


def _data(contents: ReportContents, details: PageDetails) -> dict[str, Any]:
    return {
        "cells": encode_columns(_without_common_labels(details.cells, contents.overview).drop("record")),
        "grid": encode_columns(contents.grid.head(MOST_PLACES)),
        "failures": encode_columns(contents.failures.head(failure_groups.MOST)),
        "samples": encode_columns(details.samples),
        "looks": encode_columns(details.telemetry),
        "nights": encode_columns(details.nights),
        "spreads": encode_columns(details.spreads),
        "leaders": encode_columns(details.leaderboard.candidates.head(MOST_LEADERS)),
        "methods": encode_columns(details.leaderboard.methods),
        "sources": encode_columns(details.sources.table.with_columns(pl.col("digest").str.slice(0, cell_choice.SHORT))),
        "answers": [_question_data(one) for one in (*details.questions, *_further_pages(contents))],
        "glyphs": GLYPHS,
        "states": MEANINGS,
        "labels": {name: describe_label(name) for name in LABELS},
        "notes": {
            "cells": _cells_note(contents.overview.outcomes, details.cells.height),
            "grid": _cut_note(contents.grid.height, MOST_PLACES, "places"),
            "failures": _cut_note(contents.failures.height, failure_groups.MOST, "reasons"),
            "leaders": _cut_note(details.leaderboard.candidates.height, MOST_LEADERS, "candidates on GPUs"),
            "sources": details.sources.note or _SOURCES_NOTE,
            "samples": (
                f"The page carries samples of {int(details.cells['sampled'].sum()):,} of {details.cells.height:,}"
                " outcomes: the slowest, the fastest and the noisiest; of each side at most"
                f" {cell_choice.MOST_SAMPLES:,}, taken evenly. All others are in samples.parquet."
            ),
        },
    }


def _without_common_labels(cells: pl.DataFrame, overview: Overview) -> pl.DataFrame:
    """Remove the labels that the overview does not print; labels that this version does not know stay."""
    carried = cells["labels"].explode().drop_nulls().unique()
    common = [label for label in carried if label not in overview.labels and describe_label(label)]
    shown = ~pl.element().is_in(pl.Series(common, dtype=pl.String).implode())
    return cells.with_columns(pl.col("labels").list.eval(pl.element().filter(shown)))


def _question_data(one: QuestionPage) -> dict[str, Any]:
    tables = [
        {
            "name": answer.name,
            "title": answer.title,
            "statements": list(answer.statements),
            "notes": list(answer.notes),
            "meanings": dict(answer.meanings),
            "frame": encode_columns(answer.table),
        }
        for answer in one.answers
    ]
    return {"question": one.question, "statement": one.statement, "tables": tables}


def _further_pages(contents: ReportContents) -> Iterator[QuestionPage]:
    """Yield the audit and the comparison as pages like those of the questions."""
    if contents.findings is not None:
        found = [
            Answer(
                name=one.check,
                title=f"{one.severity}: {one.about}",
                table=one.rows.drop("check", "severity"),
                notes=one.notes,
            )
            for one in contents.findings
        ]
        yield QuestionPage(question="audit", answers=found, statement="" if found else "The audit found nothing.")
    if contents.comparison is not None:
        columns = (
            "change",
            *CELL_KEY,
            "ratio",
            "ratio_low",
            "ratio_high",
            "smallest",
            "q",
            "reason",
            "test",
            "differs",
        )
        rows = contents.comparison.rows.select(columns)
        title = f"{contents.comparison.new} against {contents.comparison.base}"
        answer = Answer(name="compare", title=title, table=rows, notes=[str(contents.comparison.rules)])
        yield QuestionPage(
            question="compare", answers=(cut_rows(answer),), statement="" if rows.height else "Nothing was compared."
        )


def _cells_note(outcomes: int, shown: int) -> str:
    if shown == outcomes:
        return ""
    return (
        f"{shown:,} of {outcomes:,} outcomes are on this page: unexpected failures first, then the speed-ups furthest"
        " from 1. All are in cells.parquet; `kernel-matrix results --filter …` prints any."
    )


def _cut_note(rows: int, most: int, of: str) -> str:
    return f"The first {most:,} of {rows:,} {of} are on this page." if rows > most else ""
