"""``kernel-matrix reproduce``."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from contextlib import nullcontext, redirect_stdout
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kernel_matrix.cli.options import JsonAfterProgress, Lock
from kernel_matrix.cli.output import console, print_json
from kernel_matrix.errors import (
    GpuBusyError,
    ImageError,
    InfrastructureError,
    NothingSelectedError,
    RegressionError,
    UsageError,
)
from kernel_matrix.results.descriptions import printable

if TYPE_CHECKING:
    from kernel_matrix.analysis.reproduce import Reproduction
    from kernel_matrix.hosts.survey import HostSurvey
    from kernel_matrix.matrix import Matrix
    from kernel_matrix.plan import Cell
    from kernel_matrix.results.reading import Document

_Record = Annotated[Path, typer.Argument(metavar="RECORD", help="A record's file: <results>/<matrix>/records/….json")]
_Matrix = Annotated[Path, typer.Option("--matrix", metavar="FILE", help="The matrix file that has its cell.")]
_Out = Annotated[Path, typer.Option("--out", metavar="DIR", help="The new record goes to DIR/<matrix name>/records/.")]
_Engine = Annotated[str, typer.Option("--engine", help="auto, docker or process; default: as the record says.")]
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
        engine: _Engine = "",
        against: _Against = None,
        json: JsonAfterProgress = False,
    ) -> None:
        """Run the cell of RECORD again, with what it ran with, and say whether it comes to the same.

        Exit 0: reproduced; 5: not. The record is read and checked like any other file that nobody vouches for.
        """
        from kernel_matrix.analysis.reproduce import check_tells, reproduction  # noqa: PLC0415  # --help must not wait for it

        was = _read(record)
        check_tells(was)
        if against is not None:
            now, place = _read(against), against
        else:
            request = _Again(matrix=matrix, lock=lock, out=out, engine=engine)
            with redirect_stdout(sys.stderr) if json else nullcontext():
                place = _run_again(was, record, request)
            now = _read(place)
            _check_ended(now, place)
        found = reproduction(was, now)
        if json:
            print_json(_document(found, record, place))
        else:
            _print(found, place)
        if not found.reproduced:
            raise RegressionError(
                f"{printable(record.name)} was not reproduced: {len(found.differences)} things differ",
                next_step="Look at what differs in the environment first; then repeat with more sessions.",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Again:
    """With what a cell is run again."""

    matrix: Path
    lock: Path | None
    out: Path
    engine: str


def _read(path: Path) -> Document:
    """The record in ``path``, checked.

    :raises UsageError: when it is no record, saying why.
    """
    from kernel_matrix.results.reading import RecordRefusedError, read_record  # noqa: PLC0415  # loads the validators

    try:
        return read_record(path)
    except RecordRefusedError as error:
        next_step = "Name one file below a folder `records`, with the name that it was written under."
        raise UsageError(printable(f"{path} is no record: {error.detail}"), next_step=next_step) from None


def _run_again(record: Document, path: Path, request: _Again) -> Path:
    """Run the cell of ``record``; returns the file of the new record.

    :raises UsageError: when the matrix does not have exactly this cell, naming what differs.
    :raises NothingSelectedError: when it cannot run here.
    :raises ImageError: when the image is another.
    """
    from kernel_matrix.cli.run_request import PlannedRun, new_run_id, run_work  # noqa: PLC0415  # --help must not wait for it
    from kernel_matrix.executors.local import Rerun, RunPolicy  # noqa: PLC0415  # as above
    from kernel_matrix.hosts.survey import survey  # noqa: PLC0415  # as above
    from kernel_matrix.matrix.load import load_matrix  # noqa: PLC0415  # as above
    from kernel_matrix.results.store import RecordStore  # noqa: PLC0415  # as above

    matrix = load_matrix(request.matrix)
    found = survey(matrix, engine=request.engine or record["host"]["engine"], lock_path=request.lock)
    cell = _cell_of(record, path, matrix, found)
    _check_image(record, path, found)
    unit = _same_unit(record, found)
    store = RecordStore(request.out / matrix.name)
    orders = RunPolicy(run_id=new_run_id(), build_workers=matrix.policy.build_workers)
    run_work(
        PlannedRun(matrix=matrix, survey=unit, runnable=(cell,), skipped=()), store, orders, Rerun.ALL, as_json=False
    )
    return store.records / f"{cell.id}.{store.next_attempt(cell.id) - 1}.json"


def _cell_of(record: Document, path: Path, matrix: Matrix, found: HostSurvey) -> Cell:
    """The record's own cell, to run.

    :raises UsageError: when the matrix has no such cell, naming what differs from the nearest.
    :raises NothingSelectedError: when it cannot run here.
    """
    from kernel_matrix.cli.run_request import every_cell  # noqa: PLC0415  # --help must not wait for it

    wanted: str = record["cell_id"]
    cells = [cell for cell in every_cell(matrix, found) if cell.id == wanted or _is_named_so(cell, record)]
    exact = next((cell for cell in cells if cell.id == wanted), None)
    if exact is None:
        raise UsageError(
            printable(f"{path}: {matrix.path} does not have this cell: {_what_differs(record, cells, matrix)}"),
            next_step="Check out what it was measured with, or name the matrix it was measured by: --matrix FILE.",
        )
    if exact.reason is not None:
        raise NothingSelectedError(printable(f"{path}: the cell cannot run here: {exact.reason.text}"))
    return exact


def _is_named_so(cell: Cell, record: Document) -> bool:
    said = record["cell"]
    place = (cell.gpu.name, cell.toolchain.name, cell.dtype.value)
    return cell.candidate.id == said["candidate"] and place == (said["gpu"], said["toolchain"], said["dtype"])


def _what_differs(record: Document, cells: Iterable[Cell], matrix: Matrix) -> str:
    said = record["cell"]
    near = next(iter(cells), None)
    if near is None:
        axes = {
            "GPU": (said["gpu"], [gpu.name for gpu in matrix.gpus]),
            "toolchain": (said["toolchain"], [toolchain.name for toolchain in matrix.toolchains]),
            "dtype": (said["dtype"], [dtype.value for dtype in matrix.dtypes]),
        }
        missing = [f"no {axis} {name}" for axis, (name, names) in axes.items() if name not in names]
        return ", ".join(missing) or f"it does not select candidate {said['candidate']} of problem {said['problem']}"
    now = {
        "content of the problem": (said["problem_sha256"], near.problem.digest),
        "content of the candidate": (said["candidate_sha256"], near.candidate.digest),
        "workloads": (", ".join(said["workloads"]), ", ".join(w.name for w in near.workloads)),
        "tier": (said["tier"], near.protocol.tier.value),
    }
    named = [f"{name} ({was}, here {now})" for name, (was, now) in now.items() if was != now]
    rest = "the protocol, the policy's demands or the versions of the toolchain, which a record does not hold"
    return f"what differs: {', '.join(named) or rest}"


def _check_image(record: Document, path: Path, found: HostSurvey) -> None:
    """Refuse another image than the record's, where this engine starts images at all."""
    used, here = record["host"]["image"], found.images.get(record["cell"]["toolchain"])
    if used is None or here is None:
        return
    if used["id"] != here.id and (used["repo_digest"] is None or used["repo_digest"] != here.repo_digest):
        was, now = used["repo_digest"] or used["id"], here.repo_digest or here.id
        raise ImageError(
            printable(f"{path} ran in image {was}, here is {now}"),
            next_step="Name the lock that pins the record's image with --lock FILE, then `kernel-matrix images pull`.",
        )


def _same_unit(record: Document, found: HostSurvey) -> HostSurvey:
    """``found`` with only the record's own GPU unit, where that is here: another unit is another measurement."""
    units = tuple(gpu for gpu in found.facts.gpus if gpu.uuid == record["host"]["device"].get("uuid"))
    return replace(found, facts=replace(found.facts, gpus=units)) if units else found


def _check_ended(now: Document, place: Path) -> None:
    """The repetition must have come to an end of its own.

    :raises InfrastructureError: when the machine failed it.
    """
    outcome = now["outcome"]
    if outcome["fault"] == "infra":
        kind = GpuBusyError if outcome["status"] == "gpu_busy" else InfrastructureError
        what = f"the repetition ended as {outcome['status']}: {outcome['evidence']['message']}"
        raise kind(printable(what), next_step=f"{place} has the details; try again when the machine is well.")


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
    from rich.table import Table  # noqa: PLC0415  # rich is loaded only when something is printed

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
    from rich.table import Table  # noqa: PLC0415  # rich is loaded only when something is printed

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("environment", "was", "is", ""):
        table.add_column(name, overflow="fold")
    for one in found.environment:
        table.add_row(*(_text(value) for value in (one.name, one.was, one.now, "" if one.same else "differs")))
    console().print(table)


def _text(value: str) -> Any:
    from rich.text import Text  # noqa: PLC0415  # rich is loaded only when something is printed

    return Text(printable(value))


def _us(nanoseconds: float | None) -> str:
    return "" if nanoseconds is None else f"{nanoseconds / 1000:.2f}"
