"""The sessions of one attempt on a device that is held: fresh processes each, up to the first that does not pass."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager

from kernel_matrix.attempt.assignment import Assignment, CellCancelledError, RunContext
from kernel_matrix.attempt.attempt_log import AttemptLog
from kernel_matrix.attempt.lease_outcome import lost
from kernel_matrix.attempt.outcome import outcome_of, settle
from kernel_matrix.attempt.prepared_session import PreparedSession, SessionRequest, prepared
from kernel_matrix.attempt.sanitizing import NO_SANITIZER, sanitizer_outcome, tools_for, was_sanitized
from kernel_matrix.attempt.session_prefetch import SessionPrefetch
from kernel_matrix.attempt.session_processes import SessionResult
from kernel_matrix.attempt.telemetry_join import ObservedSession
from kernel_matrix.lease import Lease
from kernel_matrix.measure.stopping import wants_more
from kernel_matrix.model.enums import Role, Stage, Status
from kernel_matrix.model.messages import Evidence
from kernel_matrix.results.record import Outcome
from kernel_matrix.sandboxes import RunningProcess

_GRACE_S = 30.0
"""How much longer than its own limit a judge may take: it gives up by itself, and says why."""

_TOO_SLOW = frozenset({Status.TIMEOUT, Status.OUT_OF_MEMORY})
"""What a checked candidate may come to because the checking takes time and memory."""


class SessionLoop:
    """Runs the sessions of one assignment; what is seen of them goes into ``course``.

    :param ahead: starts what follows while a session runs; null: everything starts in its turn.
    """

    def __init__(
        self,
        of: Assignment,
        bench: RunContext,
        lease: Lease,
        course: AttemptLog,
        *,
        ahead: SessionPrefetch | None = None,
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
        :raises kernel_matrix.errors.InfrastructureError: when the machine failed.
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
        return self._settled(self._one(SessionRequest(of=self._of, session=session)))

    def _sanitized(self, session: int, tool: str) -> Outcome:
        """Checked by ``tool``; where that is not there, or takes too much, the session says so and decides nothing."""
        result = self._one(SessionRequest(of=self._of, session=session, sanitizer=tool))
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

    def _one(self, turn: SessionRequest) -> SessionResult:
        started_ns = time.monotonic_ns()
        with self._session(turn) as session, self._lease.session(processes=1 + len(session.contestants)):
            self._course.isolation.update(session.isolation)
            with self._course.timed("start"):
                session.begin(self._course.scan, lambda running: admit(self._lease, running))
            if self._ahead is not None:
                self._ahead.start(self._likely_after(turn))
            result = session.processes.finish(self._deadline_s, self._called_off)
        ended_ns = time.monotonic_ns()
        self._course.seen.append(ObservedSession(report=result.report, started_ns=started_ns, ended_ns=ended_ns))
        self._course.saw_ends(result.exits, turn.session)
        for phase, seconds in result.phases_s.items():
            self._course.phases[phase] += seconds
        return result

    def _session(self, turn: SessionRequest) -> AbstractContextManager[PreparedSession]:
        return prepared(turn, self._bench) if self._ahead is None else self._ahead.session(turn)

    @property
    def _deadline_s(self) -> float:
        return self._of.cell.policy.session_timeout_s + _GRACE_S

    def _called_off(self) -> bool:
        return self._bench.cancelled() or bool(self._lease.lost)

    def _likely_after(self, turn: SessionRequest) -> SessionRequest | None:
        """The session of this attempt that will follow if ``turn`` passes; null: none, as far as can be told."""
        protocol, following = self._of.cell.protocol, turn.session + 1
        tools = self._tools[self._tools.index(turn.sanitizer) + 1 :] if turn.sanitizer else self._tools
        # What the present session will add to the interval is not known: one that was too wide is taken to stay so.
        more = following < protocol.sessions or (
            protocol.sessions < following < protocol.max_sessions and wants_more(self._course.reports, protocol)
        )
        if more and not turn.sanitizer:
            return SessionRequest(of=self._of, session=following)
        return SessionRequest(of=self._of, session=following, sanitizer=tools[0]) if tools else None


def admit(lease: Lease, running: RunningProcess) -> None:
    """Tell the lease that this process, and whatever it starts, is ours."""
    pid = running.root_pid()
    if pid is not None:
        lease.tenants.admit(pid)
