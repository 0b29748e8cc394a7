"""Measuring how long each phase of a session takes."""

from __future__ import annotations

import time
from typing import Dict, Optional


class Phases:
    """A stopwatch that is always in one phase; entering another one ends it."""

    def __init__(self) -> None:
        self._seconds: Dict[str, float] = {}
        self._phase: Optional[str] = None
        self._entered = time.monotonic()

    def enter(self, phase: str) -> None:
        """Count time for ``phase`` from now on; a phase can be entered several times."""
        self._leave()
        self._phase = phase

    def ended(self) -> Dict[str, float]:
        """End the current phase; return seconds per phase, in the order in which they were first entered."""
        self._leave()
        self._phase = None
        return {phase: round(seconds, 6) for phase, seconds in self._seconds.items()}

    def _leave(self) -> None:
        now = time.monotonic()
        if self._phase is not None:
            self._seconds[self._phase] = self._seconds.get(self._phase, 0.0) + now - self._entered
        self._entered = now
