"""Starting the processes of later sessions while the current session uses the device, to keep leases short.

Processes that have no job yet import torch and wait; they neither open the device nor import a source. Processes for a
session that does not come are removed. A start that fails is tried again when the session is due.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass

from kernel_matrix.attempt.assignment import Assignment, RunContext
from kernel_matrix.attempt.prepared_session import PreparedSession, RequestKey, SessionRequest, prepared
from kernel_matrix.errors import InfrastructureError


@dataclass(frozen=True, slots=True)
class _Held:
    """A session that was started early."""

    session: PreparedSession
    undo: ExitStack


# Sessions that a lane starts early. One is not enough: on an H200 host, importing torch takes 3 to 4 s, and a session
# of the tier ``screen`` is on the device for 2 to 5 s.
DEPTH = 2


class SessionPrefetch:
    """The sessions that a lane has started early, at most :data:`DEPTH`. The lane's own thread must close it.

    ``next_assignments`` returns up to the given number of the lane's next cells, as far as they are known.
    """

    def __init__(self, context: RunContext, next_assignments: Callable[[int], Sequence[Assignment]]) -> None:
        self._context = context
        self._next_assignments = next_assignments
        self._held: dict[RequestKey, _Held] = {}

    def start(self, request: SessionRequest | None) -> None:
        """Start ``request``, if given, and the first sessions of the next cells, without waiting.

        Sessions that were started earlier and are no longer wanted are removed.
        """
        requests = [] if request is None else [request]
        requests += [
            SessionRequest(of=next_one, session=0) for next_one in self._next_assignments(DEPTH - len(requests))
        ]
        wanted = {request.key: request for request in requests}
        self._take_away(self._held.keys() - wanted.keys())
        for key, missing in wanted.items():
            if key not in self._held:
                self._start(missing)

    def _start(self, request: SessionRequest) -> None:
        # The same error will occur, and be reported, when the session is due.
        with suppress(InfrastructureError, OSError), ExitStack() as undo:
            session = undo.enter_context(prepared(request, self._context))
            self._held[request.key] = _Held(session, undo.pop_all())

    @contextmanager
    def session(self, request: SessionRequest) -> Iterator[PreparedSession]:
        """Use the session that was started early for ``request`` if it still waits; else start a new one."""
        held = self._held.pop(request.key, None)
        if held is not None:
            with held.undo:
                if held.session.processes.are_waiting():
                    yield held.session
                    return
        with prepared(request, self._context) as session:
            yield session

    def close(self) -> None:
        """Remove all sessions that were started."""
        self._take_away(self._held.keys())

    def _take_away(self, keys: Iterable[RequestKey]) -> None:
        with ExitStack() as undo:
            for key in list(keys):
                undo.push(self._held.pop(key).undo)
