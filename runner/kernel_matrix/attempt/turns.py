"""Lock for work of several kinds: work of one kind runs at the same time, work of different kinds does not."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager


class Turns:
    """Lock that work of one kind shares. First come, first served, so that no kind waits for ever."""

    def __init__(self) -> None:
        self._waiting: deque[object] = deque()
        self._running: Counter[str] = Counter()
        """Kind → how many run; no kind has 0."""
        self._changed = threading.Condition()

    @contextmanager
    def turn(self, kind: str) -> Iterator[None]:
        """Wait until all who asked before have begun, and those of other kinds have ended."""
        ticket = object()
        with self._changed:
            self._waiting.append(ticket)
            self._changed.wait_for(lambda: self._waiting[0] is ticket and self._running.keys() <= {kind})
            self._waiting.popleft()
            self._running[kind] += 1
            self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._running -= Counter((kind,))  # this drops a kind that has no more work
                self._changed.notify_all()
