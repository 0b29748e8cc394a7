"""``kernel-matrix baseline``: what nights are compared with, and which changes are accepted."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kernel_matrix.api.wording import printable
from kernel_matrix.cli.options import Json
from kernel_matrix.cli.output import console, print_json
from kernel_matrix.cli.table_options import TableOptions
from kernel_matrix.cli.table_writer import TableColumn, write_table

if TYPE_CHECKING:
    from kernel_matrix.api.night_baselines import Baseline

_Name = Annotated[str, typer.Argument(metavar="NAME", help="What the baseline is called.")]
_Folder = Annotated[
    Path | None, typer.Argument(metavar="[FOLDER]", help="Merged tables, a result folder or a packed set.")
]
_Night = Annotated[str, typer.Option("--night", metavar="DATE", help="Instead of FOLDER: a night, as 2026-12-31.")]
_Of = Annotated[str, typer.Option("--matrix", metavar="NAME", help="Whose night, where several matrices had one.")]
_Results = Annotated[Path, typer.Option("--results", metavar="DIR", help="The folder that all results are in.")]
_Force = Annotated[bool, typer.Option("--force", help="Replace the baseline that has this name.")]
_Glob = Annotated[str, typer.Argument(metavar="PROBLEM/CANDIDATE", help="Glob on candidate ids: 'softmax/triton_*'")]
_Reason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why it is accepted.")]
_Until = Annotated[str, typer.Option("--until", metavar="DATE", help="The last day on which it holds; 90 days.")]


def register(app: typer.Typer) -> None:
    """Add the verbs to ``app``."""
    verbs = typer.Typer(help="What nights are compared with, and which changes are accepted.", no_args_is_help=True)
    app.add_typer(verbs, name="baseline")

    @verbs.command(name="set")
    def set_(
        name: _Name,
        folder: _Folder = None,
        *,
        night: _Night = "",
        matrix: _Of = "",
        results: _Results = Path("results"),
        force: _Force = False,
        json: Json = False,
    ) -> None:
        """Freeze a copy of merged tables under NAME."""
        from kernel_matrix.api.night_baselines import set_baseline

        made = set_baseline(name, folder, night=night, matrix=matrix, results=results, force=force)
        _print(made, as_json=json)

    @verbs.command(name="list")
    def list_(*, results: _Results = Path("results"), json: Json = False) -> None:
        """List all baselines; `baseline show` also looks at every byte of one."""
        from kernel_matrix.api.night_baselines import list_baselines

        found = list_baselines(results)
        if json:
            print_json({"baselines": [asdict(one) for one in found.baselines], "damaged": found.damaged})
        else:
            _print_list(found.baselines, found.damaged)

    @verbs.command()
    def show(name: _Name, *, results: _Results = Path("results"), json: Json = False) -> None:
        """Show where a baseline came from, and check that its tables are what was frozen."""
        from kernel_matrix.api.night_baselines import show_baseline

        _print(show_baseline(name, results), as_json=json)

    @verbs.command()
    def accept(
        glob: _Glob,
        *,
        reason: _Reason,
        until: _Until = "",
        results: _Results = Path("results"),
        json: Json = False,
    ) -> None:
        """Accept regressions of matching candidates, with a reason and until a day."""
        from kernel_matrix.api.night_baselines import accept_change

        added, file = accept_change(glob, reason=reason, until=until, results=results)
        if json:
            said = {"candidate": added.globs["candidate"], "until": added.until.isoformat(), "reason": added.reason}
            print_json({"file": str(file), **said})
        else:
            text = f"{added} is accepted until {added.until}: {added.reason} ({file})"
            console().print(printable(text), markup=False)


def _print(found: Baseline, *, as_json: bool) -> None:
    if as_json:
        print_json(asdict(found))
        return
    out = console()
    out.print(printable(f"baseline {found.name}: {found.records} records of {found.cells} cells"), markup=False)
    out.print(printable(f"of {', '.join(found.matrices)} on {', '.join(found.gpus)}"), markup=False)
    out.print(printable(f"frozen {found.made_at} from {found.made_from}"), markup=False)
    out.print(f"content {found.content_sha256}", markup=False)


def _print_list(found: list[Baseline], damaged: dict[str, str]) -> None:
    out = console()
    if found:
        rows = [
            {
                "baseline": one.name,
                "cells": one.cells,
                "frozen": one.made_at,
                "content": one.content_sha256[:12],
                "from": one.made_from,
            }
            for one in found
        ]
        columns = [TableColumn(name=name, is_number=name == "cells") for name in rows[0]]
        write_table(rows, columns, TableOptions())
    for why in damaged.values():
        out.print(printable(why), markup=False)
    if not found and not damaged:
        out.print("there is no baseline; `kernel-matrix baseline set NAME FOLDER` makes one", markup=False)
