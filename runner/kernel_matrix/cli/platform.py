"""``kernel-matrix platform prove``: show on a real device that the code of a platform works."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kernel_matrix.cli.options import Json
from kernel_matrix.cli.output import print_json, write_line

if TYPE_CHECKING:
    from kernel_matrix.api.prove_platform import ProvenPlatform

_Name = Annotated[str, typer.Argument(metavar="NAME", help="The platform, such as cpu, or its vendor.")]
_Which = Annotated[str, typer.Option("--gpu", metavar="UUID|INDEX", help="The platform's first device by default.")]
_Toolchain = Annotated[
    str, typer.Option(metavar="NAME", help="One of the matrix; by default the PyTorch of this Python.")
]
_Matrix = Annotated[Path, typer.Option("--matrix", metavar="FILE", help="The matrix that has the toolchain.")]
_Out = Annotated[
    Path | None,
    typer.Option("--out", "-o", metavar="FILE.json", help="Write the report here, and as FILE.md for a pull request."),
]
_Quick = Annotated[bool, typer.Option("--quick", help="Compare equal code over two sessions, not five.")]


def register(app: typer.Typer) -> None:
    """Add the verb to ``app``."""
    verbs = typer.Typer(help="Platforms: show that the code of one works on a real device.", no_args_is_help=True)
    app.add_typer(verbs, name="platform")

    @verbs.command()
    def prove(
        name: _Name,
        *,
        gpu: _Which = "",
        toolchain: _Toolchain = "",
        matrix: _Matrix = Path("matrix.toml"),
        out: _Out = None,
        quick: _Quick = False,
        json: Json = False,
    ) -> None:
        """Run the conformance suite on a device: controls, cheats, clocks, memory, timing, health. Changes no setting.

        Exit code 1 if a check failed; 3 if no such device is here; 4 if this machine failed.
        """
        from kernel_matrix.api.prove_platform import prove_platform
        from kernel_matrix.cli.try_kernel import spinner

        with spinner() as tell:
            proven = prove_platform(
                name, gpu=gpu, toolchain=toolchain, matrix=matrix, out=out, quick=quick, listener=tell
            )
        if json:
            print_json(dict(proven.document))
        else:
            for line in _lines(proven):
                write_line(line)
        if proven.exit_code:
            raise typer.Exit(proven.exit_code)


def _lines(proven: ProvenPlatform) -> Iterator[str]:
    from kernel_matrix.api.prove_platform import CheckState

    report = proven.report
    yield f"platform {report.platform} on {report.device['name']}"
    for part in report.parts:
        yield part.name
        for check in part.checks:
            yield f"  {check.state.value:8}{check.name}: {check.evidence}"
    yield ", ".join(f"{report.count(state)} {state.value}" for state in CheckState)
    yield f"records: {proven.records}"
