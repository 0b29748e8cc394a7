"""``kernel-matrix serve``."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Annotated

import typer

from kernel_matrix.cli.options import FleetFile, Lock, MatrixFile, Sandbox
from kernel_matrix.cli.output import write_line
from kernel_matrix.errors import InfrastructureError

_Results = Annotated[
    Path, typer.Option("--results", metavar="DIR", help="Queue, sources and records go to DIR/<matrix name>/.")
]
_Host = Annotated[str, typer.Option("--host", metavar="ADDRESS", help="Address to listen at.")]
_Port = Annotated[int, typer.Option("--port", metavar="N", min=0, max=65535, help="Port to listen at; 0: a free one.")]
_Tokens = Annotated[
    Path | None, typer.Option("--tokens", metavar="FILE", help="A line CLIENT SHA256 for each client and its token.")
]

_ReleaseAfter = Annotated[
    float,
    typer.Option(metavar="SECONDS", min=0, help="With --fleet: how long a job without work keeps its GPU."),
]
_References = Annotated[
    bool, typer.Option("--references", help="Accept references in place of problems; the judge runs them.")
]
_KeepDays = Annotated[
    int | None,
    typer.Option(
        "--keep-days", metavar="N", min=1, max=36500, help="Forget evaluations that ended before; left out: none."
    ),
]


def register(app: typer.Typer) -> None:
    """Add the verb to ``app``."""
    app.command()(serve)


def serve(
    matrix: MatrixFile = Path("matrix.toml"),
    *,
    results: _Results = Path("results"),
    host: _Host = "127.0.0.1",
    port: _Port = 8000,
    tokens: _Tokens = None,
    references: _References = False,
    fleet: FleetFile = None,
    release_after: _ReleaseAfter = 300.0,
    keep_days: _KeepDays = None,
    sandbox: Sandbox = "auto",
    lock: Lock = None,
) -> None:
    """Judge candidates that are sent over HTTP, for the problems and GPUs of a matrix, until it is interrupted."""
    try:
        from kernel_matrix.api.serve import ServiceOptions, serving
    except ModuleNotFoundError as error:
        what = f"{error.name} is not installed"
        raise InfrastructureError(what, next_step="pip install 'kernel-matrix[service]'") from None

    options = ServiceOptions(
        matrix=matrix,
        folder=results,
        sandbox=sandbox,
        lock=lock,
        fleet=fleet,
        release_after_s=release_after,
        tokens=tokens,
        takes_references=references,
        keep_days=keep_days,
    )
    with serving(options, host=host, port=port) as address:
        write_line(f"serving {address}; {address}/docs describes the requests")
        threading.Event().wait()
