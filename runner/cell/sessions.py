"""The sessions of one attempt on a device that is held: a fresh pair of processes each, up to the first that fails."""

from __future__ import annotations

import secrets
import time
from dataclasses import asdict

from runner.cell.assignment import Assignment, Bench, CellCancelledError
from runner.cell.course import Course
from runner.cell.folders import CellFolders, session_folders
from runner.cell.pair import Pair, PairResult, run_pair
from runner.cell.settling import settle
from runner.cell.specs import Place, candidate_spec, judge_job, judge_spec
from runner.cell.telemetry import SeenSession
from runner.cell.verdict import lost
from runner.core.vocab import Role, Stage, Status
from runner.engines import Labels, Running
from runner.lease import Lease
from runner.plan import Cell
from runner.results.record import Outcome

_GRACE_S = 30.0
"""How much longer than its own limit a judge may take: it gives up by itself, and says why."""


class Sessions:
    """Runs the sessions of one assignment; what is seen of them goes into ``course``."""

    def __init__(self, of: Assignment, bench: Bench, lease: Lease, course: Course) -> None:
        self._of = of
        self._bench = bench
        self._lease = lease
        self._course = course

    def run(self) -> Outcome:
        """Session after session, up to the first that does not pass.

        :raises CellCancelledError: when the run was called off meanwhile.
        :raises runner.errors.InfrastructureError: when the machine failed.
        """
        outcome = None
        for session in range(self._of.cell.protocol.sessions):
            with session_folders(self._bench.scratch, self._of.cell, self._of.build) as folders:
                result = self._one(place_of(self._of, self._bench, session), folders)
            self._course.saw_ends(result.exits, session)
            outcome = self._settled(result)
            if outcome.status is not Status.PASSED:
                break
        if outcome is None:
            raise ValueError("a protocol needs at least one session")
        return outcome

    def _settled(self, result: PairResult) -> Outcome:
        if self._lease.lost:
            return lost(self._lease.lost, Stage.TIME)
        if result.called_off:
            raise CellCancelledError
        return settle(result)

    def _one(self, place: Place, folders: CellFolders) -> PairResult:
        pair = self._pair(place, folders)
        started_ns = time.monotonic_ns()
        with self._lease.session():
            result = run_pair(pair)
        ended_ns = time.monotonic_ns()
        self._course.seen.append(SeenSession(report=result.report, started_ns=started_ns, ended_ns=ended_ns))
        for phase, seconds in result.phases_s.items():
            self._course.phases[phase] += seconds
        return result

    def _pair(self, place: Place, folders: CellFolders) -> Pair:
        """The session's two processes, and the judge's job, written where it will look for it."""
        judge, candidate = judge_spec(place, folders), candidate_spec(place, folders)
        for spec in (judge, candidate):
            self._course.isolation[spec.role.value] = asdict(self._bench.engine.isolation(spec))
        own_uid = self._course.isolation[Role.CANDIDATE.value]["user"] == "own"
        seed = session_seed(place.cell, place.labels.session)
        folders.write_job(judge_job(place, seed, candidate.uid if own_uid else None))
        return Pair(
            engine=self._bench.engine,
            judge=judge,
            candidate=candidate,
            report=folders.report,
            deadline_s=place.cell.policy.session_timeout_s + _GRACE_S,
            called_off=lambda: self._bench.cancelled() or bool(self._lease.lost),
            admit=lambda running: admit(self._lease, running),
        )


def place_of(of: Assignment, bench: Bench, session: int) -> Place:
    """Where the processes of one session run, and whose they are."""
    labels = Labels(run_id=bench.run_id, cell_id=of.cell.id, session=session, gpu_uuid=of.gpu.uuid, owner=bench.owner)
    return Place(cell=of.cell, gpu=of.gpu, image=of.image, labels=labels)


def admit(lease: Lease, running: Running) -> None:
    """Tell the lease that this process, and whatever it starts, is ours."""
    pid = running.root_pid()
    if pid is not None:
        lease.tenants.admit(pid)


def session_seed(cell: Cell, session: int) -> str:
    """The judge's secret: 32 hex digits, drawn anew unless the protocol fixes a seed (for debugging)."""
    if cell.protocol.seed is None:
        return secrets.token_hex(16)
    return f"{cell.protocol.seed & (2**64 - 1):016x}{session:016x}"
