"""``kernel-matrix report``."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import typer

from kernel_matrix.api.wording import printable
from kernel_matrix.cli.opened_tables import opened
from kernel_matrix.cli.options import Filter
from kernel_matrix.cli.output import console
from kernel_matrix.errors import UsageError


def register(app: typer.Typer) -> None:
    """Add the verb to ``app``."""

    @app.command()
    def report(
        folders: list[Path] = typer.Argument(
            None, metavar="[FOLDER]...", help="Merged tables, result folders, packed sets; default: results."
        ),
        out: Path | None = typer.Option(
            None, help="The file; default: report.html; Markdown and text go to the terminal."
        ),
        title: str = typer.Option("", help="Title; default: the matrix and when it ran."),
        against: Path | None = typer.Option(None, metavar="BASE", help="Also compare with these earlier results."),
        *,
        site: Path | None = typer.Option(
            None, metavar="DIR", help="Write a static site instead, whose rows are files and have no limit."
        ),
        matrix: Path | None = typer.Option(
            None, metavar="FILE", help="Show sources of candidates from this matrix; default: those that the runs name."
        ),
        filter_: Filter = None,
        audit: bool = typer.Option(True, help="Also look for results that cannot be believed."),
        format_: str = typer.Option("", "--format", help="html, md or text; default: as the file is called."),
    ) -> None:
        """Write one page that opens from disk: what is portable, what is noise, what broke."""
        from kernel_matrix.api.report import PAGE, make_report, report_format, save_report, write_report_site

        if site is not None and (out is not None or format_):
            raise UsageError("--site writes HTML into a folder", next_step="Leave out --out and --format.")
        form = report_format(format_, out or PAGE)
        with ExitStack() as stack:
            results = stack.enter_context(opened(folders or [Path("results")], filter_))
            base = stack.enter_context(opened([against], filter_)) if against is not None else None
            if site is not None:
                index = write_report_site(results, site, title=title, against=base, audit=audit, matrix=matrix)
                console(stderr=True).print(
                    printable(f"{index}; python -m http.server -d {site} shows it"), markup=False
                )
                return
            text = make_report(results, form=form, title=title, against=base, audit=audit, matrix=matrix)
        target = out or (PAGE if form == "html" else None)
        if target is None:
            console().print(text, markup=False, end="", soft_wrap=True)
        else:
            save_report(text, target)
            size = target.stat().st_size / 1e6
            console(stderr=True).print(printable(f"{target} ({size:.1f} MB)"), markup=False)
