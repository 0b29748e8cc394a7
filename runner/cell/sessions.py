"""The sessions of one attempt on a device that is held: fresh processes each, up to the first that does not pass."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager

from runner.cell.ahead import Ahead
from runner.cell.assignment import Assignment, Bench, CellCancelledError
from runner.cell.course import Course
from runner.cell.prepared import Prepared, Turn, prepared
from runner.cell.processes import SessionResult
from runner.cell.sanitizing import NO_SANITIZER, sanitizer_outcome, tools_for, was_sanitized
from runner.cell.settling import outcome_of, settle
from runner.cell.telemetry import SeenSession
from runner.cell.verdict import lost
from runner.core.messages import Evidence
from runner.core.vocab import Role, Stage, Status
from runner.engines import Running
from runner.lease import Lease
from runner.measure.precision import wants_more
from runner.results.record import Outcome

_GRACE_S = 30.0
"""How much longer than its own limit a judge may take: it gives up by itself, and says why."""

_TOO_SLOW = frozenset({Status.TIMEOUT, Status.OUT_OF_MEMORY})
"""What a checked candidate may come to because the checking takes time and memory."""


class Sessions:
    """Runs the sessions of one assignment; what is seen of them goes into ``course``.

    :param ahead: starts what follows while a session runs; null: everything starts in its turn.
    """

    def __init__(
        self, of: Assignment, bench: Bench, lease: Lease, course: Course, *, ahead: Ahead | None = None
    ) -> None:
        self._of = of
        self._bench = bench
        self._lease = lease
        self._course = course
        self._ahead = ahead
        self._tools = tools_for(of.cell, of.gpu)

    def run(self) -> Outcome:
        """As many sessions as the protocol asks for, then one per sanitizer, up to the first that does not pass.

        :raises CellCancelledError: when the run was called off meanwhile.
        :raises runner.errors.InfrastructureError: when the machine failed.
        """
        outcome = self._measured(0)
        while outcome.status is Status.PASSED and wants_more(self._course.reports, self._of.cell.protocol):
            outcome = self._measured(len(self._course.seen))
        for tool in self._tools:
            if outcome.status is not Status.PASSED:
                break
            outcome = self._sanitized(len(self._course.seen), tool)
        return outcome

    def _measured(self, session: int) -> Outcome:
        return self._settled(self._one(Turn(of=self._of, session=session)))

    def _sanitized(self, session: int, tool: str) -> Outcome:
        """Checked by ``tool``; where that is not there, or takes too much, the session says so and decides nothing."""
        result = self._one(Turn(of=self._of, session=session, sanitizer=tool))
        outcome = self._settled(result)
        log = "".join(seen.log_tail for seen in result.exits if seen.role is Role.CANDIDATE)
        found = sanitizer_outcome(tool, log)
        if found is not None or was_sanitized(log):
            return found or outcome
        self._course.label_last(NO_SANITIZER)
        return outcome_of(Status.PASSED, Stage.DONE, Evidence()) if outcome.status in _TOO_SLOW else outcome

    def _settled(self, result: SessionResult) -> Outcome:
        if self._lease.lost:
            return lost(self._lease.lost, Stage.TIME)
        if result.called_off:
            raise CellCancelledError
        return settle(result)

    def _one(self, turn: Turn) -> SessionResult:
        started_ns = time.monotonic_ns()
        with self._session(turn) as session, self._lease.session(processes=1 + len(session.contestants)):
            self._course.isolation.update(session.isolation)
            with self._course.timed("start"):
                session.begin(self._course.scan, lambda running: admit(self._lease, running))
            if self._ahead is not None:
                self._ahead.start(self._likely_after(turn))
            result = session.processes.finish(self._deadline_s, self._called_off)
        ended_ns = time.monotonic_ns()
        self._course.seen.append(SeenSession(report=result.report, started_ns=started_ns, ended_ns=ended_ns))
        self._course.saw_ends(result.exits, turn.session)
        for phase, seconds in result.phases_s.items():
            self._course.phases[phase] += seconds
        return result

    def _session(self, turn: Turn) -> AbstractContextManager[Prepared]:
        return prepared(turn, self._bench) if self._ahead is None else self._ahead.session(turn)

    @property
    def _deadline_s(self) -> float:
        return self._of.cell.policy.session_timeout_s + _GRACE_S

    def _called_off(self) -> bool:
        return self._bench.cancelled() or bool(self._lease.lost)

    def _likely_after(self, turn: Turn) -> Turn | None:
        """The session of this attempt that will follow if ``turn`` passes; null: none, as far as can be told."""
        protocol, following = self._of.cell.protocol, turn.session + 1
        tools = self._tools[self._tools.index(turn.sanitizer) + 1 :] if turn.sanitizer else self._tools
        # What the present session will add to the interval is not known: one that was too wide is taken to stay so.
        more = following < protocol.sessions or (
            protocol.sessions < following < protocol.max_sessions and wants_more(self._course.reports, protocol)
        )
        if more and not turn.sanitizer:
            return Turn(of=self._of, session=following)
        return Turn(of=self._of, session=following, sanitizer=tools[0]) if tools else None


def admit(lease: Lease, running: Running) -> None:
    """Tell the lease that this process, and whatever it starts, is ours."""
    pid = running.root_pid()
    if pid is not None:
        lease.tenants.admit(pid)
