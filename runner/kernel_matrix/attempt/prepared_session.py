"""A session whose folders are made and whose processes run and wait for the job."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from kernel_matrix.attempt.assignment import Assignment, RunContext
from kernel_matrix.attempt.contestants import Contestant, contestants_of
from kernel_matrix.attempt.folders import SessionFolders, session_folders
from kernel_matrix.attempt.role_specs import CellPlacement, candidate_spec, contestant_spec, judge_job, judge_spec
from kernel_matrix.attempt.session_processes import SessionProcesses, SessionSpecs, started
from kernel_matrix.model.enums import Role
from kernel_matrix.model.messages import JudgeJob
from kernel_matrix.plan import Cell
from kernel_matrix.sandboxes import ProcessLabels, RoleSpec, RunningProcess
from kernel_matrix.scan import SourceScan

_SANITIZER_LINGERING_S = 30.0  # a sanitizer writes its summary after the judge has ended

RequestKey = tuple[str, str, int, str, Path | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRequest:
    """One session of one assignment."""

    of: Assignment
    session: int
    sanitizer: str = ""
    """Tool of compute-sanitizer that the candidate runs under; empty for none."""

    @property
    def key(self) -> RequestKey:
        """Everything that its processes depend on: processes started for an equal request can be used."""
        return self.of.cell.id, self.of.gpu.uuid, self.session, self.sanitizer, self.artifact

    @property
    def artifact(self) -> Path | None:
        """The candidate's artifact; None if nothing was built ahead of time."""
        return self.of.build.artifact if self.of.build is not None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedSession:
    """One session, ready to begin. Made by :func:`prepared`."""

    place: CellPlacement
    contestants: tuple[Contestant, ...]
    isolation: Mapping[str, Mapping[str, Any]]
    """Role → how strongly its process is confined."""
    processes: SessionProcesses
    folders: SessionFolders

    def begin(self, scan: SourceScan, admit: Callable[[RunningProcess], None]) -> None:
        """Call ``admit`` with each process, then hand out the job; only then may a process open the device.

        Raises:
            InfrastructureError: If a process could not be started.
            OSError: If the job cannot be written.
        """
        self.processes.admit(admit)
        self.folders.write_job(self._job(scan))

    def _job(self, scan: SourceScan) -> JudgeJob:
        seed = session_seed(self.place.cell, self.place.labels.session)
        own = {role for role, isolation in self.isolation.items() if isolation["user"] == "own"}
        specs = [contestant.spec(own_user=contestant.role.value in own) for contestant in self.contestants]
        return judge_job(self.place, seed, specs, scan)


@contextmanager
def prepared(request: SessionRequest, context: RunContext) -> Iterator[PreparedSession]:
    """Make the folders of a session and start its processes without waiting for them; remove everything on exit.

    Raises:
        SandboxError: If the sandbox does not answer.
        OSError: If a source cannot be read, or the disk is full.
    """
    cell, place = request.of.cell, place_of(request.of, context, request.session, request.sanitizer)
    contestants = contestants_of(cell, built=request.artifact is not None)
    with session_folders(context.scratch, cell, contestants, request.artifact) as folders:
        session_specs = _session_specs(context, place, contestants, folders)
        specs = (session_specs.judge, *session_specs.contestants)
        isolation = {spec.role.value: asdict(context.sandbox.isolation(spec)) for spec in specs}
        with started(session_specs) as processes:
            yield PreparedSession(
                place=place, contestants=contestants, isolation=isolation, processes=processes, folders=folders
            )


def _session_specs(
    context: RunContext, place: CellPlacement, contestants: tuple[Contestant, ...], folders: SessionFolders
) -> SessionSpecs:
    made = SessionSpecs(
        sandbox=context.sandbox,
        judge=judge_spec(place, folders),
        contestants=tuple(spec_of(place, folders, contestant) for contestant in contestants),
        judge_folder=folders.judge,
        report=folders.report,
    )
    return replace(made, lingering_s=_SANITIZER_LINGERING_S) if place.sanitizer else made


def spec_of(place: CellPlacement, folders: SessionFolders, contestant: Contestant) -> RoleSpec:
    """Describe the process of a contestant."""
    make = candidate_spec if contestant.role is Role.CANDIDATE else contestant_spec
    return make(place, folders, contestant)


def place_of(of: Assignment, context: RunContext, session: int, sanitizer: str = "") -> CellPlacement:
    """Return the placement of one session's processes."""
    labels = ProcessLabels(
        run_id=context.run_id, cell_id=of.cell.id, session=session, gpu_uuid=of.gpu.uuid, owner=context.owner
    )
    return CellPlacement(cell=of.cell, gpu=of.gpu, image=of.image, labels=labels, sanitizer=sanitizer)


def session_seed(cell: Cell, session: int) -> str:
    """Return the judge's secret, 32 hex digits: new unless the protocol fixes a seed (for debugging)."""
    if cell.protocol.seed is None:
        return secrets.token_hex(16)
    return f"{cell.protocol.seed & (2**64 - 1):016x}{session:016x}"
