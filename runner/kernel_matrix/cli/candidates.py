"""``kernel-matrix candidates``: the kernels there are, where they come from and whether they can be read."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import typer

from kernel_matrix.cli.collection import (
    Glob,
    Id,
    Source,
    SourcePath,
    candidate_document,
    plain,
    unreadable_documents,
    warn_of_unreadable,
)
from kernel_matrix.cli.options import Json
from kernel_matrix.cli.table_options import TableOptions, table_verb

if TYPE_CHECKING:
    from kernel_matrix.api.problems import Candidate, LoadedSource


def register(app: typer.Typer) -> None:
    """Add the verb to ``app``."""
    group = typer.Typer(help="List, show and check candidates; nothing of theirs is run.", no_args_is_help=True)
    app.add_typer(group, name="candidates")

    @group.command("list")
    @table_verb
    def list_(glob: Glob = "*", source: Source = "", path: SourcePath = None, *, table: TableOptions) -> None:
        """List candidates."""
        from kernel_matrix.api.problems import load_problems, matching

        loaded = load_problems(source, path)
        candidates = matching(loaded.candidates, glob)
        warn_of_unreadable(loaded)
        _print_list(candidates, table)

    @group.command()
    def show(id_: Id, source: Source = "", path: SourcePath = None, as_json: Json = False) -> None:
        """Show one candidate and its source."""
        from kernel_matrix.api.problems import find_one, load_problems

        _print_one(find_one(load_problems(source, path).candidates, id_, "candidate"), as_json=as_json)

    @group.command()
    def check(source: Source = "", path: SourcePath = None, as_json: Json = False) -> None:
        """Check every file without running any; exit code 2 when one cannot be used."""
        from kernel_matrix.api.problems import load_problems

        _check(load_problems(source, path), as_json=as_json)


def _print_list(candidates: tuple[Candidate, ...], table: TableOptions) -> None:
    from kernel_matrix.cli.table_writer import TableColumn, write_table

    columns = (
        TableColumn(name="id", heading="candidate"),
        TableColumn(name="language"),
        TableColumn(name="dtypes", text=lambda row: " ".join(row["dtypes"]) or "all", shortest=8),
        TableColumn(name="expect", heading="expected to end as", text=lambda row: row["expect"] or "", rank=1),
        TableColumn(name="description", text=lambda row: row["description"], rank=2, wraps=True, shortest=24),
        *(TableColumn(name=name, on_request=True) for name in ("problem", "path", "entry", "digest")),
    )
    write_table([candidate_document(candidate) for candidate in candidates], columns, table)


def _print_one(candidate: Candidate, *, as_json: bool) -> None:
    from rich.table import Table

    from kernel_matrix.cli.output import console, print_json

    document = candidate_document(candidate)
    if as_json:
        print_json(document)
        return
    document |= {"dtypes": " ".join(document["dtypes"]) or "all that the problem offers", **document.pop("origin")}
    table = Table(box=None, show_header=False)
    for key, value in document.items():
        if value not in (None, ""):
            table.add_row(key, plain(str(value)))
    screen = console()
    screen.print(table)
    screen.print(plain(candidate.path.read_text(encoding="utf-8", errors="replace")))


def _check(loaded: LoadedSource, *, as_json: bool) -> None:
    """Say how many candidates there are, by language.

    Raises:
        UsageError: Naming every file that cannot be used, problems included: without them their candidates are not even
            looked at.
    """
    from kernel_matrix.api.problems import refuse_unreadable
    from kernel_matrix.cli.output import console, print_json

    languages = Counter(candidate.language.value for candidate in loaded.candidates)
    count = len(loaded.candidates)
    if as_json:
        document = {"candidates": count, "languages": dict(languages), "unreadable": unreadable_documents(loaded)}
        print_json(document)
    else:
        parts = ", ".join(f"{number} {language}" for language, number in languages.most_common())
        console().print(f"{count} candidates can be used{f': {parts}' if parts else ''}")
    refuse_unreadable(loaded)
