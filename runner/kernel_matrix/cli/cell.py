"""``kernel-matrix cell run``: one cell alone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

_Spec = Annotated[Path, typer.Argument(metavar="SPEC.json", help='{"matrix": "matrix.toml", "cell_id": "…"}')]
_Out = Annotated[Path, typer.Option("--out", metavar="DIR", help="The record goes to DIR/records/.")]
_Json = Annotated[bool, typer.Option("--json", help="One JSON event per line on stdout.")]


def register(app: typer.Typer) -> None:
    """Add the verb to ``app``."""
    verbs = typer.Typer(help="One cell alone.", no_args_is_help=True)
    app.add_typer(verbs, name="cell")

    @verbs.command()
    def run(spec: _Spec, *, out: _Out, json: _Json = False) -> None:
        """Run exactly the cell that SPEC names, unless DIR has its record already.

        The cell id is a hash of everything that determines the answer: when a source, a workload or the protocol has
        changed since SPEC was written, the cell is not found, and nothing runs.
        """
        from kernel_matrix.cli.run_request import run_spec  # noqa: PLC0415  # --help must not wait for it

        code = run_spec(spec, out, as_json=json)
        if code:
            raise typer.Exit(code)

    @verbs.callback()
    def _verbs_only() -> None:
        """Keep ``run`` a verb even while there is one."""
