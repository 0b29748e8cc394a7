"""Write one page about results."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final

import polars as pl

from kernel_matrix.analysis.tables import Tables
from kernel_matrix.api.compare_results import compare
from kernel_matrix.api.results import Results, as_results
from kernel_matrix.errors import UsageError
from kernel_matrix.report.contents import audited, gather
from kernel_matrix.report.formats import compose, format_of, render
from kernel_matrix.report.source_texts import matrices_of
from kernel_matrix.results.store import replace_document

__all__ = ["PAGE", "make_report", "report_format", "save_report", "write_report", "write_report_site"]

PAGE: Final = Path("report.html")
"""The file that a page is written to by default."""
_MOST_NAMES: Final = 4
"""Matrices in a default title; a title has to stay one line."""


def make_report(
    results: Results | str | Path = "results",
    *,
    form: str = "html",
    title: str = "",
    against: Results | str | Path | None = None,
    audit: bool = True,
    matrix: str | Path | None = None,
) -> str:
    """Return a report: what is portable, what is noise, what broke.

    Args:
        results: Opened results, or a folder.
        form: ``html``, ``md`` or ``text``.
        title: By default the matrix and when it ran.
        against: Also compare with these earlier results.
        audit: Also look for results that cannot be believed.
        matrix: A page takes the sources of candidates from this matrix; by default from those that the runs name.

    Raises:
        UsageError: There is no such format or matrix, or ``html`` lacks the extra ``report``.

    Examples:
        >>> import kernel_matrix
        >>> text = kernel_matrix.make_report("results/example-h200.kmz", form="text", title="Two H200", audit=False)
        >>> text.splitlines()[0]
        'Two H200'
    """
    render(form)
    opened = as_results(results)
    return compose(form, opened.tables, **_made_of(opened, title, against, audit=audit, matrix=matrix))


def _made_of(
    opened: Results,
    title: str,
    against: Results | str | Path | None,
    *,
    audit: bool,
    matrix: str | Path | None,
) -> dict[str, Any]:
    """Return what a report is made of beside the tables; see :func:`kernel_matrix.report.contents.gather`."""
    if matrix is not None and not Path(matrix).is_file():
        raise UsageError(f"there is no matrix {matrix}", next_step="Name a file: --matrix FILE.")
    return {
        "title": title or _title(opened.tables),
        "made_at": datetime.now(timezone.utc),
        "folders": [str(folder) for folder in opened.folders],
        "comparison": None if against is None else compare(against, opened),
        "findings": audited(opened.tables) if audit else None,
        "record_folders": opened.record_folders,
        "matrices": matrices_of(opened.record_folders) if matrix is None else [Path(matrix)],
    }


def write_report_site(
    results: Results | str | Path,
    folder: str | Path,
    *,
    title: str = "",
    against: Results | str | Path | None = None,
    audit: bool = True,
    matrix: str | Path | None = None,
) -> Path:
    """Write the page as a static site, whose rows have no limit: they are in files that the page reads as needed.

    The arguments are those of :func:`make_report`. A browser reads the rows from a web server only.

    Returns:
        ``index.html`` in ``folder``.

    Raises:
        StoreError: A file cannot be written.
        UsageError: There is no such matrix, or the extra ``report`` is not installed.
    """
    from kernel_matrix.report.site import write_site  # noqa: PLC0415  # page and charts, which text does not need

    opened = as_results(results)
    contents, outcomes = gather(opened.tables, **_made_of(opened, title, against, audit=audit, matrix=matrix))
    return write_site(Path(folder), contents, opened.tables, outcomes)


def write_report(
    results: Results | str | Path = "results",
    out: str | Path = PAGE,
    *,
    title: str = "",
    against: Results | str | Path | None = None,
    audit: bool = True,
    matrix: str | Path | None = None,
) -> Path:
    """Write a report: HTML, or the format that the ending of ``out`` says (``.md``, ``.txt``).

    The arguments are those of :func:`make_report`.

    Returns:
        The file.

    Raises:
        StoreError: The file cannot be written; what was there before stays.
    """
    file = Path(out)
    form = format_of(file)
    save_report(make_report(results, form=form, title=title, against=against, audit=audit, matrix=matrix), file)
    return file


def save_report(text: str, file: Path) -> None:
    """Write a report aside and rename it, so that the old one is never seen half replaced.

    Raises:
        StoreError: The file cannot be written.
    """
    replace_document(file, text)


def report_format(form: str, file: Path) -> str:
    """Return ``form``, or where it is empty the format that the file's ending says.

    Raises:
        UsageError: There is no such format.
    """
    name = form or format_of(file)
    render(name)
    return name


def _title(tables: Tables) -> str:
    facts = tables.cells.select(
        pl.col("matrix").drop_nulls().unique().sort().head(_MOST_NAMES).implode().alias("names"),
        pl.col("run_started_at").max().alias("last"),
    )
    row = facts.collect(engine="streaming").row(0, named=True)
    names = ", ".join(row["names"] or []) or "kernel-matrix"
    return f"{names}, {row['last']:%d %B %Y}" if row["last"] else names
