"""The sessions of one attempt on a leased device, each with new processes, up to the first that does not pass."""

from __future__ import annotations

import time

from kernel_matrix.attempt.assignment import Assignment, CellCancelledError, RunContext
from kernel_matrix.attempt.attempt_log import AttemptLog
from kernel_matrix.attempt.outcome import decide_outcome, lost, outcome_of
from kernel_matrix.attempt.prepared_session import SessionRequest, prepared
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

_GRACE_S = 30.0  # a judge ends by itself at its limit, with a reason; the host waits this much longer

# Statuses that a correct candidate may get because a sanitizer needs time and memory.
_TOO_SLOW = frozenset({Status.TIMEOUT, Status.OUT_OF_MEMORY, Status.DOES_NOT_FIT})


class SessionLoop:
    """Runner of the sessions of one assignment; ``ahead``, if given, starts the processes of later sessions early."""

    def __init__(
        self,
        of: Assignment,
        context: RunContext,
        lease: Lease,
        log: AttemptLog,
        *,
        ahead: SessionPrefetch | None = None,
    ) -> None:
        self._of = of
        self._context = context
        self._lease = lease
        self._log = log
        self._ahead = ahead
        self._tools = tools_for(of.cell, of.gpu)

    def run(self) -> Outcome:
        """Run as many sessions as the protocol asks for, then one per sanitizer, up to the first that does not pass.

        Raises:
            CellCancelledError: If the run was cancelled meanwhile.
            InfrastructureError: If the machine failed.
        """
        outcome = self._measured(0)
        while outcome.status is Status.PASSED and wants_more(self._log.reports, self._of.cell.protocol):
            outcome = self._measured(len(self._log.seen))
        for tool in self._tools:
            if outcome.status is not Status.PASSED:
                break
            outcome = self._sanitized(len(self._log.seen), tool)
        if outcome.status is Status.PASSED and not self._of.cell.protocol.spec.time:
            return outcome_of(Status.VERIFIED, Stage.DONE, Evidence())
        return outcome

    def _measured(self, session: int) -> Outcome:
        return self._settled(self._one(SessionRequest(of=self._of, session=session)))

    def _sanitized(self, session: int, tool: str) -> Outcome:
        """Run a session under ``tool``. If the tool is missing or too slow, the session gets a label and passes."""
        result = self._one(SessionRequest(of=self._of, session=session, sanitizer=tool))
        outcome = self._settled(result)
        log = "".join(seen.log_tail for seen in result.exits if seen.role is Role.CANDIDATE)
        found = sanitizer_outcome(self._of.gpu, tool, log)
        if found is not None or was_sanitized(self._of.gpu, tool, log):
            return found or outcome
        self._log.label_last(NO_SANITIZER)
        return outcome_of(Status.PASSED, Stage.DONE, Evidence()) if outcome.status in _TOO_SLOW else outcome

    def _settled(self, result: SessionResult) -> Outcome:
        if self._lease.lost:
            return lost(self._lease.lost, Stage.TIME)
        if result.called_off:
            raise CellCancelledError
        return decide_outcome(result)

    def _one(self, request: SessionRequest) -> SessionResult:
        started_ns = time.monotonic_ns()
        prepare = prepared(request, self._context) if self._ahead is None else self._ahead.session(request)
        with prepare as session, self._lease.session(processes=1 + len(session.contestants)):
            self._log.isolation.update(session.isolation)
            with self._log.timed("start"):
                session.begin(self._log.scan, lambda running: admit(self._lease, running))
            if self._ahead is not None:
                self._ahead.start(self._likely_after(request))
            result = session.processes.finish(self._of.cell.policy.session_timeout_s + _GRACE_S, self._called_off)
        ended_ns = time.monotonic_ns()
        self._log.seen.append(ObservedSession(report=result.report, started_ns=started_ns, ended_ns=ended_ns))
        self._log.saw_ends(result.exits, request.session)
        for phase, seconds in result.phases_s.items():
            self._log.phases[phase] += seconds
        return result

    def _called_off(self) -> bool:
        return self._context.cancelled() or bool(self._lease.lost)

    def _likely_after(self, request: SessionRequest) -> SessionRequest | None:
        """Return the session that follows if ``request`` passes, as far as that can be predicted; else None."""
        protocol, following = self._of.cell.protocol, request.session + 1
        tools = self._tools[self._tools.index(request.sanitizer) + 1 :] if request.sanitizer else self._tools
        # The current session's effect on the interval is not known; if it was too wide, it is assumed to stay so.
        more = following < protocol.sessions or (
            protocol.sessions < following < protocol.max_sessions and wants_more(self._log.reports, protocol)
        )
        if more and not request.sanitizer:
            return SessionRequest(of=self._of, session=following)
        return SessionRequest(of=self._of, session=following, sanitizer=tools[0]) if tools else None


def admit(lease: Lease, running: RunningProcess) -> None:
    """Register a process and its descendants with the lease as the cell's own."""
    pid = running.root_pid()
    if pid is not None:
        lease.admit(pid)
