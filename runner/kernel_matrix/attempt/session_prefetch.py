"""Starting the processes of the next sessions while the present one is on the device: their start costs no lease.

Until they have their job, processes import torch and wait: none has opened the device, or imported any source. What
was started for a turn that never comes is taken away again, and a start that fails is tried again in its turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass

from kernel_matrix.attempt.assignment import Assignment, RunContext
from kernel_matrix.attempt.prepared_session import PreparedSession, SessionRequest, TurnKey, prepared
from kernel_matrix.errors import InfrastructureError


@dataclass(frozen=True, slots=True)
class _Held:
    """A session that was started before its turn."""

    session: PreparedSession
    undo: ExitStack


DEPTH = 2
"""How many sessions a lane starts ahead. One is not enough: beside an H200, importing torch takes 3 to 4 s, and a
session of the tier ``screen`` is on the device for 2 to 5 s."""


class SessionPrefetch:
    """The sessions that a lane has started ahead, at most :data:`DEPTH`. To be closed, by the lane's own thread.

    :param next_assignments: so many of the lane's next cells, as far as they can be told already.
    """

    def __init__(self, bench: RunContext, next_assignments: Callable[[int], Sequence[Assignment]]) -> None:
        self._bench = bench
        self._next_assignments = next_assignments
        self._held: dict[TurnKey, _Held] = {}

    def start(self, turn: SessionRequest | None) -> None:
        """Start ``turn``, if there is one, and the first sessions of the next cells; nothing is waited for.

        What was started before and is none of these is taken away.
        """
        turns = [] if turn is None else [turn]
        turns += [SessionRequest(of=next_one, session=0) for next_one in self._next_assignments(DEPTH - len(turns))]
        wanted = {turn.key: turn for turn in turns}
        self._take_away(self._held.keys() - wanted.keys())
        for key, missing in wanted.items():
            if key not in self._held:
                self._start(missing)

    def _start(self, turn: SessionRequest) -> None:
        # Whatever is wrong will be wrong in its turn as well, and is told then.
        with suppress(InfrastructureError, OSError), ExitStack() as undo:
            session = undo.enter_context(prepared(turn, self._bench))
            self._held[turn.key] = _Held(session, undo.pop_all())

    @contextmanager
    def session(self, turn: SessionRequest) -> Iterator[PreparedSession]:
        """The session of ``turn``: one started ahead, if it is that and still waits, else a new one."""
        held = self._held.pop(turn.key, None)
        if held is not None:
            with held.undo:
                if held.session.processes.are_waiting():
                    yield held.session
                    return
        with prepared(turn, self._bench) as session:
            yield session

    def close(self) -> None:
        """Take away what was started."""
        self._take_away(self._held.keys())

    def _take_away(self, keys: Iterable[TurnKey]) -> None:
        with ExitStack() as undo:
            for key in list(keys):
                undo.push(self._held.pop(key).undo)
