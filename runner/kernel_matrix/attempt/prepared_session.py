"""A session whose folders are made and whose processes run and wait for the job."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from kernel_matrix.attempt.assignment import Assignment, RunContext
from kernel_matrix.attempt.contestants import Contestant, candidate_of, contestants_of, implementations_of
from kernel_matrix.attempt.folders import SessionFolders, candidate_folders, judge_folders, stage_candidate, stage_judge
from kernel_matrix.attempt.pausing import pausing_on_request
from kernel_matrix.attempt.role_specs import CellPlacement, candidate_spec, contestant_spec, judge_job, judge_spec
from kernel_matrix.attempt.session_processes import LINGERING_S, Launch, SessionProcesses, are_waiting, launched
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
    """One session, ready to begin. Made by :meth:`.JudgeProcesses.session`."""

    place: CellPlacement
    contestants: tuple[Contestant, ...]
    isolation: Mapping[str, Mapping[str, Any]]
    """Role → how strongly its process is confined."""
    processes: SessionProcesses
    folders: SessionFolders
    keep: bool
    """The judge is asked to wait for another session after this one."""
    undo: ExitStack

    def begin(self, scan: SourceScan, admit: Callable[[RunningProcess], None]) -> None:
        """Call ``admit`` with each process, then hand out the job; only then may a process open the device.

        Raises:
            InfrastructureError: If a process could not be started.
            OSError: If the job cannot be written.
        """
        self.processes.admit(admit)
        self.undo.enter_context(pausing_on_request(self.folders.judge, self.processes.candidate))
        self.folders.write_job(self._job(scan))

    def _job(self, scan: SourceScan) -> JudgeJob:
        seed = session_seed(self.place.cell, self.place.labels.session)
        own = {role for role, isolation in self.isolation.items() if isolation["user"] == "own"}
        specs = [contestant.spec(own_user=contestant.role.value in own) for contestant in self.contestants]
        return replace(judge_job(self.place, seed, specs, scan), number=self.folders.number, keep=self.keep)


@dataclass(frozen=True, slots=True)
class _WaitingCandidate:
    """A candidate's process that waits for its session, and its folders."""

    folders: SessionFolders
    spec: RoleSpec
    launch: Launch


@dataclass(frozen=True, slots=True)
class _SpareCandidate:
    """A candidate's process without a source, and how to end it."""

    kind: tuple[Any, ...]
    """Equal for requests that it can serve."""
    waiting: _WaitingCandidate
    undo: ExitStack


class JudgeProcesses:
    """A judge, the baseline and rivals, which wait for a candidate. Made by :func:`judge_processes`."""

    def __init__(
        self, context: RunContext, folders: SessionFolders, specs: Sequence[RoleSpec], launches: Sequence[Launch]
    ) -> None:
        self._context = context
        self._folders = folders
        self._specs = specs
        self._launches = launches
        self._candidates = 0
        self._spare: _SpareCandidate | None = None

    def are_waiting(self) -> bool:
        """Wait until all have started; return True if none has ended yet."""
        return are_waiting(self._launches)

    def root_pids(self) -> list[int]:
        """Return the PIDs of the first processes of those that have started and not ended."""
        return [pid for launch in self._launches if (pid := launch.running().root_pid()) is not None]

    def stage(self, request: SessionRequest) -> None:
        """Give the sources of the request's problem to processes that were started without.

        Raises:
            OSError: If a source cannot be read, or the disk is full.
        """
        stage_judge(self._folders, request.of.cell, tuple(implementations_of(request.of.cell)))

    def start_spare(self, like: SessionRequest) -> None:
        """Start a candidate's process for a later request ``like`` this one, unless one waits.

        Raises:
            SandboxError: If the sandbox does not answer.
            OSError: If the disk is full.
        """
        if self._spare is not None and not are_waiting([self._spare.waiting.launch]):
            self.end_spare()
        if self._spare is None:
            with ExitStack() as undo:
                waiting = self._start_candidate(like, None, undo)
                self._spare = _SpareCandidate(_kind_of_candidate(like), waiting, undo.pop_all())

    def end_spare(self) -> None:
        """End the process of :meth:`start_spare` if no session has it."""
        if self._spare is not None:
            spare, self._spare = self._spare, None
            spare.undo.close()

    @contextmanager
    def session(self, request: SessionRequest, *, keep: bool = False) -> Iterator[PreparedSession]:
        """Start the candidate of ``request`` without waiting for it; end it and remove its folders on exit.

        Sessions may be prepared while another one runs, but they must run one after the other.

        Args:
            request: A session that these processes suit.
            keep: Let them wait for another session after this one, if the candidate cannot change their files.

        Raises:
            SandboxError: If the sandbox does not answer.
            OSError: If the source cannot be read, or the disk is full.
        """
        context, artifact = self._context, request.artifact
        place = place_of(request.of, context, request.session, request.sanitizer)
        contestants = contestants_of(request.of.cell, built=artifact is not None)
        with ExitStack() as undo:
            candidate = self._take_spare(request, contestants[0], undo)
            candidate = candidate or self._start_candidate(request, contestants[0], undo)
            folders = candidate.folders
            specs = (*self._specs, candidate.spec)
            isolation = {spec.role.value: asdict(context.sandbox.isolation(spec)) for spec in specs}
            processes = SessionProcesses(
                *(self._launches[0], candidate.launch, self._launches[1:]),
                labels=place.labels,
                report=folders.report,
                is_kept=folders.waiting.exists,
                lingering_s=_SANITIZER_LINGERING_S if place.sanitizer else LINGERING_S,
            )
            yield PreparedSession(
                place=place,
                contestants=contestants,
                isolation=isolation,
                processes=processes,
                folders=folders,
                keep=keep and _cannot_reach_others(isolation[Role.CANDIDATE.value]),
                undo=undo,
            )

    def _start_candidate(
        self, request: SessionRequest, candidate: Contestant | None, undo: ExitStack
    ) -> _WaitingCandidate:
        """Start the process of ``candidate``; None starts a spare one, which gets its source before its job."""
        artifact = request.artifact
        number, self._candidates = self._candidates, self._candidates + 1
        like = candidate or candidate_of(request.of.cell, built=artifact is not None)
        made = candidate_folders(self._folders, number, like, has_artifact=artifact is not None)
        folders = undo.enter_context(made)
        if candidate is not None:
            stage_candidate(folders, candidate, artifact)
        place = place_of(request.of, self._context, request.session, request.sanitizer)
        spec = candidate_spec(place, folders, like)
        (launch,) = undo.enter_context(launched(self._context.sandbox, [spec]))
        return _WaitingCandidate(folders, spec, launch)

    def _take_spare(self, request: SessionRequest, candidate: Contestant, undo: ExitStack) -> _WaitingCandidate | None:
        """Give the spare process the source of ``candidate``; None if there is none that suits and lives."""
        spare = self._spare
        if spare is None or spare.kind != _kind_of_candidate(request) or not are_waiting([spare.waiting.launch]):
            return None
        self._spare = None
        undo.push(spare.undo)
        stage_candidate(spare.waiting.folders, candidate, request.artifact)
        return spare.waiting


def kind_of_judge(request: SessionRequest) -> tuple[Any, ...]:
    """Return all that the processes of judge, baseline and rivals depend on before they have sources."""
    of, cell = request.of, request.of.cell
    others = [(one.name, one.uid, one.preloads) for one in implementations_of(cell)]
    return (of.gpu, of.image, cell.toolchain, cell.policy, *others)


def _kind_of_candidate(request: SessionRequest) -> tuple[Any, ...]:
    """Return all that the process of a candidate depends on before it has its source."""
    cell = request.of.cell
    return (*kind_of_judge(request), cell.candidate.language, request.artifact is not None, request.sanitizer)


def _cannot_reach_others(isolation: Mapping[str, Any]) -> bool:
    """Return True if a candidate that is confined so can change no file and no process of later sessions."""
    return isolation["user"] == "own" or (isolation["filesystem"], isolation["processes"]) == ("read-only", "private")


@contextmanager
def judge_processes(
    request: SessionRequest, context: RunContext, *, is_spare: bool = False
) -> Iterator[JudgeProcesses]:
    """Make the folders of a judge for ``request``, and start it, the baseline and rivals without waiting for them.

    Everything is ended and removed on exit.

    Args:
        request: What they are for.
        context: The run.
        is_spare: They are for another request like this one, and get their sources by :meth:`JudgeProcesses.stage`.

    Raises:
        SandboxError: If the sandbox does not answer.
        OSError: If a source cannot be read, or the disk is full.
    """
    cell, place = request.of.cell, place_of(request.of, context, request.session, request.sanitizer)
    others = tuple(implementations_of(cell))
    with judge_folders(context.scratch, others) as folders:
        if not is_spare:
            stage_judge(folders, cell, others)
        specs = [judge_spec(place, folders), *(contestant_spec(place, folders, one) for one in others)]
        with launched(context.sandbox, specs) as launches:
            made = JudgeProcesses(context, folders, specs, launches)
            try:
                yield made
            finally:
                made.end_spare()


@contextmanager
def prepared(request: SessionRequest, context: RunContext) -> Iterator[PreparedSession]:
    """Prepare a session whose processes are all new; see :meth:`JudgeProcesses.session`."""
    with judge_processes(request, context) as judge, judge.session(request) as session:
        yield session


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
