"""``kernel-matrix reproduce``."""

from __future__ import annotations

import sys
from contextlib import nullcontext, redirect_stdout
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kernel_matrix.api.wording import printable
from kernel_matrix.cli.options import JsonAfterProgress, Lock, command_line
from kernel_matrix.cli.output import console, print_json
from kernel_matrix.errors import RegressionError

if TYPE_CHECKING:
    from kernel_matrix.api.repeat_record import Reproduction

_Record = Annotated[Path, typer.Argument(metavar="RECORD", help="A record's file: <results>/<matrix>/records/….json")]
_Matrix = Annotated[Path, typer.Option("--matrix", metavar="FILE", help="The matrix file that has its cell.")]
_Out = Annotated[Path, typer.Option("--out", metavar="DIR", help="The new record goes to DIR/<matrix name>/records/.")]
_Sandbox = Annotated[str, typer.Option("--sandbox", help="auto, docker, unpacked or process; default: the record's.")]
_Against = Annotated[
    Path | None, typer.Option("--against", metavar="RECORD2", help="Compare with this record, and run nothing.")
]


def register(app: typer.Typer) -> None:
    """Add the verb to ``app``."""

    @app.command()
    def reproduce(
        record: _Record,
        *,
        matrix: _Matrix = Path("matrix.toml"),
        lock: Lock = None,
        out: _Out = Path("reproduced"),
        sandbox: _Sandbox = "",
        against: _Against = None,
        json: JsonAfterProgress = False,
    ) -> None:
        """Run the cell of RECORD again, with what it ran with, and say whether it comes to the same.

        Exit 0: reproduced; 5: not. The record is checked like any file of unknown origin.
        """
        from kernel_matrix.api.repeat_record import reproduce as repeat
        from kernel_matrix.cli.progress import run_view

        with redirect_stdout(sys.stderr) if json else nullcontext(), run_view(as_json=False) as view:
            repeated = repeat(
                record,
                matrix=matrix,
                lock=lock,
                out=out,
                sandbox=sandbox,
                against=against,
                listener=view.tell,
                command=command_line(),
            )
        found, place = repeated.found, repeated.record
        if json:
            print_json(_document(found, record, place))
        else:
            _print(found, place)
        if not found.reproduced:
            raise RegressionError(
                f"{printable(record.name)} was not reproduced: {len(found.differences)} things differ",
                next_step=found.next_step,
            )


def _document(found: Reproduction, record: Path, place: Path) -> dict[str, Any]:
    return {
        "reproduced": found.reproduced,
        "cell_id": found.cell_id,
        "record": str(record),
        "again": str(place),
        "status": {"was": found.was_status, "is": found.is_status},
        "differences": list(found.differences),
        "times": [{**asdict(one), "within": one.within} for one in found.times],
        "environment": [{**asdict(one), "same": one.same} for one in found.environment],
        "notes": list(found.notes),
    }


def _print(found: Reproduction, place: Path) -> None:
    out = console()
    _print_times(found)
    _print_environment(found)
    for note in found.notes:
        out.print(printable(note), markup=False)
    for difference in found.differences:
        out.print(printable(f"differs: {difference}"), markup=False)
    out.print(printable(f"the other record: {place}"), markup=False)
    status = f"{found.is_status}, as before" if found.was_status == found.is_status else found.is_status
    out.print(f"{'reproduced' if found.reproduced else 'not reproduced'}: {status}", markup=False)


def _print_times(found: Reproduction) -> None:
    from rich.table import Table

    if not found.times:
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("workload", "was µs", "is µs", "expected µs", "", "rests on", "verdict"):
        table.add_column(name, justify="right" if "µs" in name else "left", no_wrap=True)
    for one in found.times:
        expected = f"{_us(one.low_ns)} – {_us(one.high_ns)}"
        said = (one.was_verdict or "", one.is_verdict or "")
        verdict = said[0] if said[0] == said[1] else " → ".join(said)
        within = "within" if one.within else "outside"
        row = (one.workload, _us(one.was_ns), _us(one.is_ns), expected, within, one.rests_on, verdict)
        table.add_row(*(_text(value) for value in row))
    console().print(table)


def _print_environment(found: Reproduction) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("environment", "was", "is", ""):
        table.add_column(name, overflow="fold")
    for one in found.environment:
        table.add_row(*(_text(value) for value in (one.name, one.was, one.now, "" if one.same else "differs")))
    console().print(table)


def _text(value: str) -> Any:
    from rich.text import Text

    return Text(printable(value))


def _us(nanoseconds: float | None) -> str:
    return "" if nanoseconds is None else f"{nanoseconds / 1000:.2f}"
