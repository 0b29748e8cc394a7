"""Starting the processes of the next session while the present one is on the device: its start costs no lease.

Until they have their job, processes import torch and wait: none has opened the device, or imported any source. What
was started for a turn that never comes is taken away again, and a start that fails is tried again in its turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass

from runner.cell.assignment import Assignment, Bench
from runner.cell.prepared import Prepared, Turn, prepared
from runner.errors import InfrastructureError


@dataclass(frozen=True, slots=True)
class _Held:
    """A session that was started before its turn."""

    turn: Turn
    session: Prepared
    undo: ExitStack


class Ahead:
    """The one session that a lane has started ahead. To be closed, by the lane's own thread.

    :param next_assignment: the lane's next cell, when one can be told already.
    """

    def __init__(self, bench: Bench, next_assignment: Callable[[], Assignment | None]) -> None:
        self._bench = bench
        self._next_assignment = next_assignment
        self._held: _Held | None = None

    def start(self, turn: Turn | None) -> None:
        """Start ``turn``, or the first session of the next cell where there is none; nothing is waited for."""
        turn = turn or self._first_of_next_cell()
        if self._held is not None and (turn is None or self._held.turn.key != turn.key):
            self.close()
        if turn is None or self._held is not None:
            return
        # Whatever is wrong will be wrong in its turn as well, and is told then.
        with suppress(InfrastructureError, OSError), ExitStack() as undo:
            session = undo.enter_context(prepared(turn, self._bench))
            self._held = _Held(turn, session, undo.pop_all())

    @contextmanager
    def session(self, turn: Turn) -> Iterator[Prepared]:
        """The session of ``turn``: the one started ahead, if it is that and still waits, else a new one."""
        held, self._held = self._held, None
        if held is not None:
            with held.undo:
                if held.turn.key == turn.key and held.session.processes.are_waiting():
                    yield held.session
                    return
        with prepared(turn, self._bench) as session:
            yield session

    def close(self) -> None:
        """Take away what was started."""
        held, self._held = self._held, None
        if held is not None:
            held.undo.close()

    def _first_of_next_cell(self) -> Turn | None:
        assignment = self._next_assignment()
        return None if assignment is None else Turn(of=assignment, session=0)
