"""``kernel-matrix report``."""

from __future__ import annotations

from contextlib import ExitStack
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from kernel_matrix.cli.opened_tables import merged
from kernel_matrix.cli.output import console
from kernel_matrix.nightly.durable_write import write_whole
from kernel_matrix.results.descriptions import printable

if TYPE_CHECKING:
    from kernel_matrix.analysis.tables import Tables


_PAGE = Path("report.html")
"""What a page is written to where nothing else is named."""


def register(app: typer.Typer) -> None:
    """Add the verb to ``app``."""

    @app.command()
    def report(
        folders: list[Path] = typer.Argument(
            None, metavar="[FOLDER]...", help="Merged tables, or result folders; default: results."
        ),
        out: Path | None = typer.Option(
            None, help="The file; default: report.html; Markdown and text go to the terminal."
        ),
        title: str = typer.Option("", help="Title; default: the matrix and when it ran."),
        against: Path | None = typer.Option(None, metavar="BASE", help="Also compare with these earlier results."),
        *,
        audit: bool = typer.Option(True, help="Also look for results that cannot be believed."),
        format_: str = typer.Option("", "--format", help="html, md or text; default: as the file is called."),
    ) -> None:
        """Write one page that opens from disk: what is portable, what is noise, what broke."""
        from kernel_matrix.analysis.tables import open_tables  # noqa: PLC0415  # loads polars
        from kernel_matrix.report.contents import audited, gather  # noqa: PLC0415  # see above
        from kernel_matrix.report.formats import format_of, render  # noqa: PLC0415  # loads polars

        name = format_ or format_of(out or _PAGE)
        write = render(name)
        wanted = folders or [Path("results")]
        with ExitStack() as stack:
            tables = open_tables(stack.enter_context(merged(wanted, traces=name == "html")))
            compared = None
            if against is not None:
                from kernel_matrix.analysis.compare import compare  # noqa: PLC0415  # only where something is compared

                base = open_tables(stack.enter_context(merged([against])))
                compared = compare(base.cells, tables.cells, names=(str(against), ", ".join(map(str, wanted))))
            contents, found = gather(
                tables,
                title=title or _title(tables),
                made_at=datetime.now(timezone.utc),
                folders=[str(folder) for folder in wanted],
                comparison=compared,
                findings=audited(tables) if audit else None,
            )
            said = write(contents, tables, found)
        target = out or (_PAGE if name == "html" else None)
        if target is None:
            console().print(said, markup=False, end="", soft_wrap=True)
        else:
            _save(said, target)


def _save(said: str, target: Path) -> None:
    """Written aside and then renamed: whoever has the old one open keeps a whole one."""
    write_whole(target, said)
    size = target.stat().st_size / 1e6
    console(stderr=True).print(printable(f"{target} ({size:.1f} MB)"), markup=False)


def _title(tables: Tables) -> str:
    import polars as pl  # noqa: PLC0415  # loaded only when something is reported

    facts = tables.cells.select(
        pl.col("matrix").drop_nulls().unique().sort().head(4).implode().alias("names"),
        pl.col("run_started_at").max().alias("last"),
    )
    row = facts.collect(engine="streaming").row(0, named=True)
    names = ", ".join(row["names"] or []) or "kernel-matrix"
    return f"{names}, {row['last']:%d %B %Y}" if row["last"] else names
