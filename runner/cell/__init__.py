"""One cell on this host, from start to record.

``run_cell`` is the whole path: lease → judge and candidate, session after session → outcome → record. Building comes
before, off the lease, in :mod:`runner.cell.building`.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from runner.cell.building import Build
from runner.cell.folders import CellFolders, session_folders
from runner.cell.pair import Pair, PairResult, run_pair
from runner.cell.settling import machine_failed, once_timed, outcome_of, settle
from runner.cell.specs import Place, candidate_spec, judge_job, judge_spec
from runner.core.messages import Evidence, SessionReport
from runner.core.vocab import Fault, Role, Stage, Status
from runner.engines import Engine, EngineStatus, Exit, Labels
from runner.engines.family import family
from runner.errors import GpuBusyError, InfrastructureError
from runner.gpus import Gpu
from runner.host import core_sha256, host_identity
from runner.images import Resolved
from runner.lease import Lease, WaitCancelledError, hold
from runner.plan import Cell
from runner.results.record import CellKey, ExitSeen, HostHalf, ImageUsed, Outcome, Record


class CellCancelledError(Exception):
    """The cell was called off; it leaves no record and stays to be done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What this host lends every cell of a run."""

    run_id: str
    engine: Engine
    engine_status: EngineStatus
    owner: str
    """Token of this process, for labels; see :mod:`runner.engines.owner`."""
    scratch: Path
    """Folder for staging, on a local disk; other users may pass through it."""
    cancelled: Callable[[], bool] = lambda: False


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """One cell, where it runs, and what it runs with."""

    cell: Cell
    gpu: Gpu
    image: Resolved | None = None
    build: Build | None = None
    """What the builder made; null where the language needs none."""
    attempt: int = 1


def run_cell(assignment: Assignment, bench: Bench) -> Record:
    """Run a cell and say what happened; the record is not stored here.

    :raises CellCancelledError: when the bench's run was called off meanwhile.
    """
    return _Attempt(assignment, bench).run()


class _Attempt:
    """One attempt at one cell: gathers on the way what the record will say."""

    def __init__(self, assignment: Assignment, bench: Bench) -> None:
        self._of = assignment
        self._bench = bench
        self._started = time.monotonic()
        self._started_at = _now()
        self._phases: dict[str, float] = {}
        self._sessions: list[SessionReport] = []
        self._exits: list[ExitSeen] = []
        self._isolation: dict[str, Mapping[str, Any]] = {}
        self._lease: Lease | None = None
        self._roots: Collection[int] = ()

    def run(self) -> Record:
        """From lease to record."""
        build = self._of.build
        if build is not None:
            self._phases["build"] = build.seconds
            self._exits += _seen(build.exits, 0)
        try:
            outcome = build.outcome if build is not None and build.outcome is not None else self._on_the_device()
        except WaitCancelledError:
            raise CellCancelledError from None
        except GpuBusyError as error:
            outcome = outcome_of(Status.GPU_BUSY, Stage.LEASE, Evidence(message=str(error)))
        except (InfrastructureError, OSError) as error:
            outcome = machine_failed(error, Stage.START)
        return self._record(outcome)

    def _on_the_device(self) -> Outcome:
        policy = self._of.cell.policy
        with hold(
            self._of.gpu,
            wait_s=policy.gpu_wait_s,
            exclusive=policy.exclusive,
            own_pids=lambda: family(self._roots),
            cancelled=self._bench.cancelled,
        ) as lease:
            self._lease = lease
            self._phases["lease_wait"] = lease.waited_s
            outcome = self._all_sessions()
        if lease.foreign_pids and outcome.fault is Fault.NONE and policy.exclusive:
            message = f"somebody else came onto the GPU: {lease.reason}"
            return outcome_of(Status.CONTENDED, Stage.TIME, Evidence(message=message))
        return outcome

    def _all_sessions(self) -> Outcome:
        """Session after session, up to the first that does not pass."""
        outcome = None
        for session in range(self._of.cell.protocol.sessions):
            with session_folders(self._bench.scratch, self._of.cell, self._of.build) as folders:
                result = self._one_session(session, folders)
            if result.cancelled:
                raise CellCancelledError
            self._exits += _seen(result.exits, session)
            if result.report is not None:
                self._sessions.append(result.report)
            outcome = settle(result)
            if outcome.status is not Status.PASSED:
                break
        if outcome is None:
            raise ValueError("a protocol needs at least one session")
        return outcome

    def _one_session(self, session: int, folders: CellFolders) -> PairResult:
        of, bench = self._of, self._bench
        labels = Labels(
            run_id=bench.run_id, cell_id=of.cell.id, session=session, gpu_uuid=of.gpu.uuid, owner=bench.owner
        )
        place = Place(cell=of.cell, gpu=of.gpu, image=of.image, labels=labels)
        judge, candidate = judge_spec(place, folders), candidate_spec(place, folders)
        for spec in (judge, candidate):
            self._isolation[spec.role.value] = asdict(bench.engine.isolation(spec))
        own_uid = self._isolation[Role.CANDIDATE.value]["user"] == "own"
        seed = session_seed(of.cell, session)
        folders.write_job(judge_job(place, seed, candidate.uid if own_uid else None))
        result = run_pair(
            Pair(
                engine=bench.engine,
                judge=judge,
                candidate=candidate,
                report=folders.report,
                deadline_s=of.cell.policy.session_timeout_s + 30,
                cancelled=bench.cancelled,
                look=self._look,
            )
        )
        for phase, seconds in result.phases_s.items():
            self._phases[phase] = self._phases.get(phase, 0.0) + seconds
        return result

    def _look(self, roots: Collection[int]) -> None:
        """See who is on the device while the pair runs; a CPU has no list to look at."""
        self._roots = roots
        if self._lease is not None and self._of.gpu.vendor != "cpu":
            self._lease.check()

    def _record(self, outcome: Outcome) -> Record:
        return Record(
            run_id=self._bench.run_id,
            cell_id=self._of.cell.id,
            attempt=self._of.attempt,
            cell=cell_key(self._of.cell),
            outcome=once_timed(outcome, self._sessions),
            host=self._host_half(),
            sessions=tuple(self._sessions),
        )

    def _all_phases(self) -> Mapping[str, float]:
        """Seconds per phase; ``overhead`` is what neither the inside nor a wait explains."""
        total = time.monotonic() - self._started
        inside = sum(report.durations_s.get("total", 0.0) for report in self._sessions)
        overhead = max(0.0, total - inside - self._phases.get("lease_wait", 0.0))
        phases = {**self._phases, "inside": inside, "total": total, "overhead": overhead}
        return {name: round(seconds, 6) for name, seconds in phases.items()}

    def _host_half(self) -> HostHalf:
        identity, lease, policy = host_identity(), self._lease, self._of.cell.policy
        never_held = ("not_applicable", "the device was never held")
        state, reason = lease.clock_state(policy.clocks) if lease else never_held
        return HostHalf(
            hostname=identity.hostname,
            machine=identity.machine,
            platform=identity.platform,
            cpu=identity.cpu,
            cores=identity.cores,
            version=identity.version,
            core_sha256=core_sha256(),
            engine=self._bench.engine.name,
            engine_version=self._bench.engine_status.version,
            engine_details=self._bench.engine_status.details,
            image=_image_used(self._of.image),
            device=asdict(self._of.gpu),
            device_before=lease.before if lease else {},
            device_after=lease.after if lease else {},
            exclusive=lease.exclusive if lease else "not_applicable",
            foreign_pids=lease.foreign_pids if lease else (),
            clock_policy=policy.clocks,
            clock_state=state,
            clock_reason=reason,
            isolation=self._isolation,
            exits=tuple(self._exits),
            phases_s=self._all_phases(),
            started_at=self._started_at,
            ended_at=_now(),
            warnings=lease.warnings if lease else (),
        )


def session_seed(cell: Cell, session: int) -> str:
    """The judge's secret: 32 hex digits, drawn anew unless the protocol fixes a seed (for debugging)."""
    if cell.protocol.seed is None:
        return secrets.token_hex(16)
    return f"{cell.protocol.seed & (2**64 - 1):016x}{session:016x}"


def _seen(exits: tuple[Exit, ...], session: int) -> list[ExitSeen]:
    return [
        ExitSeen(
            role=e.role,
            session=session,
            code=e.code,
            signal=e.signal,
            oom_killed=e.oom_killed,
            lost=e.lost,
            killed=e.killed,
            log_tail=e.log_tail,
        )
        for e in exits
    ]


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")


def _image_used(image: Resolved | None) -> ImageUsed | None:
    if image is None:
        return None
    return ImageUsed(
        reference=image.reference, id=image.id, repo_digest=image.repo_digest, store=image.store, state=image.state
    )


def cell_key(cell: Cell) -> CellKey:
    """The cell in words, as records carry it."""
    problem, candidate = cell.problem, cell.candidate
    return CellKey(
        gpu=cell.gpu.name,
        toolchain=cell.toolchain.name,
        dtype=cell.dtype,
        problem=problem.id,
        problem_sha256=problem.digest,
        category=problem.category,
        level=problem.level,
        source=problem.source,
        candidate=candidate.id,
        candidate_sha256=candidate.digest,
        language=candidate.language,
        tier=cell.protocol.tier,
        workloads=tuple(w.name for w in cell.workloads),
        origin={name: value for name, value in asdict(candidate.origin).items() if value is not None},
        expect=candidate.expect,
    )
