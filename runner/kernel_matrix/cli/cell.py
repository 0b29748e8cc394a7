"""``kernel-matrix cell run``: one cell alone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kernel_matrix.cli.options import JsonEvents, command_line

_Spec = Annotated[Path, typer.Argument(metavar="SPEC.json", help='{"matrix": "matrix.toml", "cell_id": "…"}')]
_Out = Annotated[Path, typer.Option("--out", metavar="DIR", help="The record goes to DIR/records/.")]


def register(app: typer.Typer) -> None:
    """Add the verb to ``app``."""
    verbs = typer.Typer(help="One cell alone.", no_args_is_help=True)
    app.add_typer(verbs, name="cell")

    @verbs.command()
    def run(spec: _Spec, *, out: _Out, json: JsonEvents = False) -> None:
        """Run exactly the cell that SPEC names, unless DIR has its record already.

        The cell id is a hash of everything that determines the answer: when a source, a workload or the protocol has
        changed since SPEC was written, the cell is not found, and nothing runs.
        """
        from kernel_matrix.api.run_cells import run_cell_file
        from kernel_matrix.cli.progress import run_view

        with run_view(as_json=json) as view:
            result = run_cell_file(spec, out, listener=view.tell, command=command_line())
        if result.exit_code:
            raise typer.Exit(result.exit_code)

    @verbs.command(hidden=True)
    def serve(spec: _Spec, *, out: _Out, json: JsonEvents = False) -> None:  # noqa: ARG001  # jobs are started alike
        """Judge what is sent to DIR, for a service whose fleet has a job that calls this."""
        from kernel_matrix.api.judge_on_fleet import judge_sent_candidates

        judge_sent_candidates(spec, out)

    @verbs.command(hidden=True)
    def node(spec: _Spec) -> None:
        """Describe this host beside SPEC, for a fleet whose job calls this."""
        from kernel_matrix.api.fleet import write_node_report

        write_node_report(spec)
