"""``kernel-matrix fleet``: look at the sites of a fleet, and at what runs there."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kernel_matrix.cli.options import Json, Lock
from kernel_matrix.cli.table_options import TableOptions, table_verb

if TYPE_CHECKING:
    from kernel_matrix.api.fleet_plan import FleetCheck
    from kernel_matrix.api.run_cells import Record

_File = Annotated[Path, typer.Argument(metavar="[FLEET]", help="The fleet file; -: standard input.")]
_Matrix = Annotated[Path, typer.Option("--matrix", metavar="FILE", help="The matrix that runs there.")]
_Results = Annotated[Path, typer.Option("--results", metavar="DIR", help="Where its records go.")]
_Chunk = Annotated[str, typer.Argument(metavar="CHUNK", help="A name that `fleet status` prints.")]
FLEET_FILE = Path("fleet.toml")
MATRIX_FILE = Path("matrix.toml")
RESULTS = Path("results")


def register(app: typer.Typer) -> None:
    """Add the verbs to ``app``."""
    verbs = typer.Typer(help="Look at the sites of a fleet, and at what runs there.", no_args_is_help=True)
    app.add_typer(verbs, name="fleet")
    verbs.command()(check)
    verbs.command()(table_verb(status))
    verbs.command()(logs)
    verbs.command()(collect)
    verbs.command()(cancel)


def check(
    fleet: _File = FLEET_FILE,
    *,
    matrix: _Matrix = MATRIX_FILE,
    results: _Results = RESULTS,
    lock: Lock = None,
    json: Json = False,
) -> None:
    """Run one cell on each kind of GPU, as a run would. Exit code 4 when one cannot run cells."""
    from kernel_matrix.api.fleet_plan import check_fleet, load_fleet
    from kernel_matrix.api.plan import load_matrix
    from kernel_matrix.cli.output import print_json, write_line

    checked = check_fleet(load_fleet(fleet), load_matrix(matrix), results, lock=lock)
    if json:
        print_json(_document(checked))
    else:
        for line in _lines(checked):
            write_line(line)
    if checked.faults:
        raise typer.Exit(4)


def status(
    fleet: _File = FLEET_FILE, *, matrix: _Matrix = MATRIX_FILE, results: _Results = RESULTS, table: TableOptions
) -> None:
    """List the chunks that are under way, or were left by a run that ended early."""
    from kernel_matrix.api.fleet import list_chunks
    from kernel_matrix.api.fleet_plan import load_fleet
    from kernel_matrix.api.plan import load_matrix
    from kernel_matrix.cli.table_writer import TableColumn, write_table

    columns = (
        TableColumn(name="name", heading="chunk"),
        TableColumn(name="site", rank=2),
        TableColumn(name="resource", heading="GPU", rank=1),
        TableColumn(name="state"),
        TableColumn(name="records", is_number=True),
        TableColumn(name="cells", is_number=True),
        TableColumn(name="node", rank=3),
        TableColumn(name="reason", rank=4, shortest=12),
    )
    chunks = list_chunks(load_fleet(fleet), load_matrix(matrix), results)
    write_table([asdict(chunk) | {"log": str(chunk.log)} for chunk in chunks], columns, table)


def logs(
    chunk: _Chunk, fleet: _File = FLEET_FILE, *, matrix: _Matrix = MATRIX_FILE, results: _Results = RESULTS
) -> None:
    """Print what the job of a chunk has printed so far."""
    from kernel_matrix.api.fleet import read_log
    from kernel_matrix.api.fleet_plan import load_fleet
    from kernel_matrix.api.plan import load_matrix
    from kernel_matrix.cli.output import write_line

    write_line(read_log(load_fleet(fleet), load_matrix(matrix), results, chunk).rstrip("\n"))


def collect(fleet: _File = FLEET_FILE, *, matrix: _Matrix = MATRIX_FILE, results: _Results = RESULTS) -> None:
    """Take home the records that chunks have so far, and remove chunks that have ended."""
    from kernel_matrix.api.fleet import collect_records
    from kernel_matrix.api.fleet_plan import load_fleet
    from kernel_matrix.api.plan import load_matrix
    from kernel_matrix.cli.output import write_line

    records, going_on = collect_records(load_fleet(fleet), load_matrix(matrix), results)
    write_line(f"{records} records came home; {going_on} chunks go on")


def cancel(fleet: _File = FLEET_FILE, *, matrix: _Matrix = MATRIX_FILE, results: _Results = RESULTS) -> None:
    """End every job of these results. What they measured stays for `fleet collect`."""
    from kernel_matrix.api.fleet import cancel_jobs
    from kernel_matrix.api.fleet_plan import load_fleet
    from kernel_matrix.api.plan import load_matrix

    cancel_jobs(load_fleet(fleet), load_matrix(matrix), results)


def _document(checked: FleetCheck) -> dict[str, Any]:
    return {
        "places": [
            {
                "site": slot.site,
                "resource": slot.resource,
                "hostname": report.hostname,
                "version": report.version,
                "devices": [gpu.name for gpu in report.inventory.gpus],
                "sandbox": report.inventory.sandbox,
                "images": dict(report.inventory.images),
                "clocks_reason": report.inventory.clocks_reason,
                "trial": _trial_document(checked.trials.get(slot)),
            }
            for slot, report in checked.reports.items()
        ],
        "faults": dict(checked.faults),
    }


def _trial_document(record: Record | None) -> dict[str, Any] | None:
    from kernel_matrix.cli.run_conditions import conditions_document

    if record is None:
        return None
    found = {"candidate": record.cell.candidate, "status": record.outcome.status.value}
    return found | {"message": record.outcome.evidence.message, **conditions_document(record)}


def _lines(checked: FleetCheck) -> list[str]:
    from kernel_matrix.cli.progress import verdict_line
    from kernel_matrix.cli.run_conditions import conditions_line

    lines = []
    for slot, report in checked.reports.items():
        lines.append(f"ok    {slot}: {report.devices} on {report.hostname}")
        lines += [
            f"      toolchain {toolchain}: {why or 'can run'}" for toolchain, why in report.inventory.images.items()
        ]
        if slot in checked.trials:
            record = checked.trials[slot]
            lines.append(f"      {record.cell.candidate}: {verdict_line(record)}{conditions_line(record)}")
        if report.inventory.clocks_reason:
            lines.append(f"      clocks will not be locked: {report.inventory.clocks_reason}")
    return [*lines, *(f"fail  {place}: {why}" for place, why in checked.faults.items())]
