"""The sessions of one lane: started early where that disturbs nobody, and with one judge for several cells.

Processes that have no job yet import torch and wait; they neither open the device nor import a source. Processes for a
session that does not come are removed. A start that fails is tried again when the session is due.

A judge, its baseline and its rivals can serve the candidates of several cells that differ in nothing else, one after
the other. Each candidate has a process of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from kernel_matrix.attempt.assignment import Assignment, RunContext
from kernel_matrix.attempt.prepared_session import (
    JudgeProcesses,
    PreparedSession,
    RequestKey,
    SessionRequest,
    judge_processes,
    kind_of_judge,
)
from kernel_matrix.errors import InfrastructureError
from kernel_matrix.lease import KeptProcesses

# Sessions that a lane starts early. One is not enough: on an H200 host, importing torch takes 3 to 4 s, and a session
# of the tier ``screen`` is on the device for 2 to 5 s.
DEPTH = 2

MOST_CELLS = 20
"""Cells that one judge serves: what is special about one process must not reach all results of a run."""


def sharing_key(request: SessionRequest) -> tuple[Any, ...] | None:
    """Return everything that judge, baseline and rivals of a session depend on; None if they serve one session only.

    Where a cell has several sessions, each shows how much fresh processes differ, and an attempt that is repeated is to
    have nothing in common with the one before.
    """
    of, cell = request.of, request.of.cell
    alone = cell.protocol.max_sessions > 1 or cell.policy.sanitize or cell.policy.hard_exclusive or of.gpu.devices
    if alone or request.session > 0 or of.attempt > 1:
        return None
    return (of.gpu, of.image, cell.toolchain, cell.dtype, cell.problem, cell.workloads, cell.protocol, cell.policy)


@dataclass(slots=True, eq=False)
class _Judge:
    """A judge with its baseline and rivals, and how to end them."""

    processes: JudgeProcesses
    key: tuple[Any, ...] | None
    undo: ExitStack
    sessions: int = 0
    """Sessions that have been prepared for it."""


@dataclass(frozen=True, slots=True)
class _Held:
    """A session that was started, and how to end its candidate."""

    session: PreparedSession
    judge: _Judge
    undo: ExitStack


class SessionPrefetch:
    """The sessions of a lane. The lane's own thread must close it.

    ``next_assignments`` returns up to the given number of the lane's next cells, as far as they are known; ``depth`` is
    how many sessions are started early.
    """

    def __init__(
        self, context: RunContext, next_assignments: Callable[[int], Sequence[Assignment]], depth: int = DEPTH
    ) -> None:
        self._context = context
        self._next_assignments = next_assignments
        self._depth = depth
        self._held: dict[RequestKey, _Held] = {}
        self._judges: list[_Judge] = []
        self._present: _Judge | None = None
        """The judge of the present session; between sessions, the one that is kept."""
        self._like: SessionRequest | None = None
        """The latest session, which the next one may be like."""
        self._spare: _Judge | None = None
        """A judge without a problem; its key is that of :func:`kind_of_judge`."""
        self.kept = KeptProcesses()
        """The processes of the judge that is kept, for the next lease of the device."""

    def start(self, request: SessionRequest | None) -> None:
        """Start ``request``, if given, and the first sessions of the next cells, without waiting.

        Sessions that were started earlier and are no longer wanted are removed.
        """
        if self._depth == 0:
            return
        requests = [] if request is None else [request]
        requests += [
            SessionRequest(of=next_one, session=0) for next_one in self._next_assignments(self._depth - len(requests))
        ]
        wanted = {request.key: request for request in requests}
        self._take_away(self._held.keys() - wanted.keys())
        for key, missing in wanted.items():
            if key not in self._held:
                # The same error will occur, and be reported, when the session is due.
                with suppress(InfrastructureError, OSError):
                    self._held[key] = self._started(missing)

    def start_spares(self) -> None:
        """Start processes for a cell that may come, of the present problem or of another, unless they wait.

        They are for what is like the latest session; they have imported torch, and no source.
        """
        like = self._like
        if self._depth == 0 or like is None:
            return
        with suppress(InfrastructureError, OSError):  # the same error will occur, and be reported, when a cell comes
            if self._spare is not None and not self._spare.processes.are_waiting():
                self._end_spare()
            if self._spare is None:
                self._spare = self._start_judge(like, kind_of_judge(like), is_spare=True)
            self._spare.processes.start_spare(like)
            if self._present is not None:
                self._present.processes.start_spare(like)

    @contextmanager
    def session(self, request: SessionRequest) -> Iterator[PreparedSession]:
        """Use the session that was started early for ``request`` if it still waits; else start one.

        Raises:
            SandboxError: If the sandbox does not answer.
            OSError: If a source cannot be read, or the disk is full.
        """
        self._end_dead(request)
        self.end_unsuited(request)
        held = self._held.pop(request.key, None) or self._started(request)
        self._present, self._like = held.judge, request
        try:
            with held.undo:
                yield held.session
        finally:
            if held.session.processes.are_kept:
                self.kept.set(held.judge.processes.root_pids())
            else:
                self._end(held.judge)

    def end_unsuited(self, request: SessionRequest) -> None:
        """End a judge that was kept if it is not to serve ``request``, which is the next.

        Call it before the device is held for that, too.
        """
        held = self._held.get(request.key)
        judge = held.judge if held is not None else self._judge_for(sharing_key(request))
        if judge is not self._present:
            self.end_kept()

    def end_kept(self) -> None:
        """End a judge that was kept, and free the device for others."""
        if self._present is not None:
            self._end(self._present)

    def close(self) -> None:
        """Remove all sessions that were started."""
        self._present = None
        with ExitStack() as undo:
            undo.callback(self.kept.set, ())
            undo.callback(self._end_spare)
            self._take_away(self._held.keys())

    def _started(self, request: SessionRequest) -> _Held:
        """Start a session: its candidate alone if there is a judge for it."""
        key = sharing_key(request)
        judge = self._judge_for(key)
        if judge is None:
            judge = self._adopt_spare(request, key) or self._start_judge(request, key)
            self._judges.append(judge)
        judge.sessions += 1
        with ExitStack() as failed:
            failed.callback(self._take_away, ())  # a new judge that no candidate waits for
            with ExitStack() as undo:
                session = undo.enter_context(judge.processes.session(request, keep=key is not None))
                held = _Held(session, judge, undo.pop_all())
            failed.pop_all()
        return held

    def _judge_for(self, key: tuple[Any, ...] | None) -> _Judge | None:
        return next((judge for judge in self._judges if self._suits(judge, key)), None)

    @staticmethod
    def _suits(judge: _Judge, key: tuple[Any, ...] | None) -> bool:
        """Return True if one more session with this key may be prepared for ``judge``."""
        return key is not None and key == judge.key and judge.sessions < MOST_CELLS

    def _start_judge(self, request: SessionRequest, key: tuple[Any, ...] | None, *, is_spare: bool = False) -> _Judge:
        with ExitStack() as undo:
            processes = undo.enter_context(judge_processes(request, self._context, is_spare=is_spare))
            return _Judge(processes, key, undo.pop_all())

    def _adopt_spare(self, request: SessionRequest, key: tuple[Any, ...] | None) -> _Judge | None:
        """Give the spare judge the problem of ``request``; None if there is none that suits and lives."""
        spare = self._spare
        if spare is None or spare.key != kind_of_judge(request) or request.sanitizer:
            return None
        if not spare.processes.are_waiting():
            self._end_spare()
            return None
        spare.processes.stage(request)
        self._spare, spare.key = None, key
        return spare

    def _end_spare(self) -> None:
        if self._spare is not None:
            spare, self._spare = self._spare, None
            spare.undo.close()

    def _end_dead(self, request: SessionRequest) -> None:
        """End the judge that is to serve ``request`` if a process of this session has ended."""
        held, judge = self._held.get(request.key), self._judge_for(sharing_key(request))
        if held is not None and not held.session.processes.are_waiting():
            self._end(held.judge)
        elif held is None and judge is not None and not judge.processes.are_waiting():
            self._end(judge)

    def _end(self, judge: _Judge) -> None:
        """End ``judge`` and the candidates that wait for it."""
        is_kept = self._present is judge
        if is_kept:
            self._present = None
        self._take_away([key for key, held in self._held.items() if held.judge is judge])
        if is_kept:
            self.kept.set(())

    def _take_away(self, keys: Iterable[RequestKey]) -> None:
        """End these candidates, then the judges that no candidate waits for."""
        with ExitStack() as undo:
            for key in list(keys):
                undo.push(self._held.pop(key).undo)
        used = [self._present, *(held.judge for held in self._held.values())]
        with ExitStack() as undo:
            for judge in self._judges:
                if judge not in used:
                    undo.push(judge.undo)
        self._judges = [judge for judge in self._judges if judge in used]
