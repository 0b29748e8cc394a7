"""Run the cell of a record again, and compare."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kernel_matrix.analysis.reproduce import Reproduction, check_tells, reproduction
from kernel_matrix.api.plan import every_cell, load_matrix
from kernel_matrix.api.run_cells import CellSelection, Listener
from kernel_matrix.environments import changes
from kernel_matrix.errors import (
    GpuBusyError,
    ImageError,
    InfrastructureError,
    NothingSelectedError,
    PythonEnvironmentError,
    UsageError,
)
from kernel_matrix.executors.local import Rerun
from kernel_matrix.hosts.survey import HostSurvey, survey
from kernel_matrix.matrix import Matrix
from kernel_matrix.plan import Cell
from kernel_matrix.results.descriptions import printable
from kernel_matrix.results.packed_set import unpacked_file
from kernel_matrix.results.reading import Document, RecordRefusedError, read_record
from kernel_matrix.results.store import RecordStore

__all__ = ["RepeatedRecord", "Reproduction", "reproduce"]


@dataclass(frozen=True, slots=True)
class RepeatedRecord:
    """Result of a repetition."""

    found: Reproduction
    record: Path
    """The other record's file."""


def reproduce(
    record: str | Path,
    *,
    matrix: str | Path = "matrix.toml",
    lock: str | Path | None = None,
    out: str | Path = "reproduced",
    sandbox: str = "",
    against: str | Path | None = None,
    listener: Listener | None = None,
    command: Sequence[str] = (),
) -> RepeatedRecord:
    """Run the cell of a record again, with what it ran with, and compare; or compare two records.

    Args:
        record: The record's file, or one in a packed set: ``set.kmz/records/<name>``. It is checked like any file of
            unknown origin.
        matrix: The matrix file that has its cell.
        lock: The images lock; the matrix's own by default.
        out: The new record goes to ``<out>/<matrix name>/records/``.
        sandbox: ``auto``, ``docker``, ``unpacked`` or ``process``; by default the record's.
        against: Compare with this record, and run nothing.
        listener: As for :func:`kernel_matrix.run`.
        command: As for :func:`kernel_matrix.run`.

    Raises:
        UsageError: It is no record, or the matrix does not have exactly its cell.
        NothingSelectedError: The cell cannot run here.
        ImageError: The image here is another.
        InfrastructureError: The machine failed the repetition.
    """
    path = Path(record)
    was = _read(path)
    check_tells(was)
    if against is not None:
        return RepeatedRecord(reproduction(was, _read(Path(against))), Path(against))
    loaded = load_matrix(matrix)
    host = survey(loaded, sandbox=sandbox or was["host"]["engine"], lock_path=Path(lock) if lock else None)
    cell = _cell_of(was, path, loaded, host)
    _check_image(was, path, host)
    cells = CellSelection(matrix=loaded, host=_same_unit(was, host), runnable=(cell,), command=command)
    result = cells.run(Path(out) / loaded.name, rerun=Rerun.ALL, listener=listener)
    place = result.records / f"{cell.id}.{RecordStore(result.folder).next_attempt(cell.id) - 1}.json"
    now = _read(place)
    _check_ended(now, place)
    return RepeatedRecord(reproduction(was, now), place)


def _read(path: Path) -> Document:
    """Return the checked record in ``path``.

    Raises:
        UsageError: It is not a valid record; the message gives the reason.
    """
    try:
        with unpacked_file(path) as file:
            return read_record(file)
    except RecordRefusedError as error:
        next_step = "Name one file below a folder `records`, with the name that it was written under."
        raise UsageError(printable(f"{path} is no record: {error.detail}"), next_step=next_step) from None


def _cell_of(record: Document, path: Path, matrix: Matrix, found: HostSurvey) -> Cell:
    """Return the cell of the record, to run it.

    Raises:
        UsageError: The matrix has no such cell; the message gives the differences from the nearest.
        NothingSelectedError: It cannot run here.
    """
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
    place = (cell.gpu.name, cell.toolchain.name, cell.dtype.value, cell.problem.ranks)
    recorded = (said["gpu"], said["toolchain"], said["dtype"], said.get("ranks", 1))
    return cell.candidate.id == said["candidate"] and place == recorded


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
    link = (record["host"].get("link") or {}).get("kind")
    now = {
        "link between the GPUs": (link or "not known", near.link or "not known"),
        "content of the problem": (said["problem_sha256"], near.problem.digest),
        "content of the candidate": (said["candidate_sha256"], near.candidate.digest),
        "workloads": (", ".join(said["workloads"]), ", ".join(w.name for w in near.workloads)),
        "tier": (said["tier"], near.protocol.tier.value),
    }
    named = [f"{name} ({was}, here {now})" for name, (was, now) in now.items() if was != now]
    rest = "the protocol, the policy's demands or the versions of the toolchain, which a record does not hold"
    return f"what differs: {', '.join(named) or rest}"


def _check_image(record: Document, path: Path, found: HostSurvey) -> None:
    """Refuse another image than the record's, where this sandbox starts images at all."""
    used, here = record["host"]["image"], found.images.get(record["cell"]["toolchain"])
    if used is None or here is None:
        return
    if here.environment is not None and used["id"] != here.id:
        was = record["host"].get("environment") or {}
        what = changes(was.get("distributions", {}), was.get("programs", {}), here.environment)
        raise PythonEnvironmentError(
            printable(f"{path} ran in another environment than {here.reference} is now: {what}"),
            next_step="Install what the record names, or name another environment in the matrix.",
        )
    if used["id"] != here.id and (used["repo_digest"] is None or used["repo_digest"] != here.repo_digest):
        was, now = used["repo_digest"] or used["id"], here.repo_digest or here.id
        raise ImageError(
            printable(f"{path} ran in image {was}, here is {now}"),
            next_step="Name the lock that pins the record's image with --lock FILE, then `kernel-matrix images pull`.",
        )


def _same_unit(record: Document, found: HostSurvey) -> HostSurvey:
    """Return ``found`` with only the record's own GPU, if that is here, because another GPU gives another result."""
    units = tuple(gpu for gpu in found.inventory.gpus if gpu.uuid == record["host"]["device"].get("uuid"))
    return replace(found, inventory=replace(found.inventory, gpus=units)) if units else found


def _check_ended(now: Document, place: Path) -> None:
    """Check that the repetition ended by itself.

    Raises:
        InfrastructureError: The machine failed it.
    """
    outcome = now["outcome"]
    if outcome["fault"] == "infra":
        kind = GpuBusyError if outcome["status"] == "gpu_busy" else InfrastructureError
        what = f"the repetition ended as {outcome['status']}: {outcome['evidence']['message']}"
        raise kind(printable(what), next_step=f"{place} has the details; try again when the machine is well.")
