"""Wait for a sandbox that has stopped answering, so that its outage uses up no cell's attempts."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from kernel_matrix.attempt import CellCancelledError
from kernel_matrix.errors import SandboxError
from kernel_matrix.executors.events import EventKind, RunEvent
from kernel_matrix.plan import Cell
from kernel_matrix.sandboxes import Sandbox

_POLL_S = 1.0  # a daemon takes seconds to start


@dataclass(kw_only=True)
class SandboxOutage:
    """Gate that holds every lane and build while the sandbox does not answer. Safe to share between threads."""

    sandbox: Sandbox
    limit_s: float
    """Seconds after which the run fails."""
    tell: Callable[[RunEvent], None]
    cancelled: Callable[[], bool]
    _last_seen_away: float = -math.inf
    """Monotonic time until which the sandbox may not have answered."""
    _is_given_up: bool = False
    _asking: threading.Lock = field(default_factory=threading.Lock)

    def wait_until_back(self, cell: Cell, since: float, lane: str = "") -> bool:
        """Wait until the sandbox answers; call it when this machine has failed ``cell``.

        Args:
            cell: Cell to name in events.
            since: Monotonic time at which the failed step began.
            lane: Name of the calling lane, for events.

        Returns:
            ``True`` if the sandbox did not answer at some time after ``since``.

        Raises:
            CellCancelledError: The run was cancelled.
            SandboxError: The sandbox has not answered for ``limit_s``; raised only once, and ends the run.
        """
        with self._asking:
            reason = self._find_reason()
            if reason:
                self._tell(EventKind.SANDBOX_LOST, cell, lane, f"{reason}; waiting for up to {self.limit_s:.0f} s")
                self._wait()
                self._last_seen_away = time.monotonic()  # what began since the last failed check may have failed too
                self._tell(EventKind.SANDBOX_BACK, cell, lane, f"sandbox {self.sandbox.name} answers again")
            return self._last_seen_away >= since

    def _wait(self) -> None:
        deadline = time.monotonic() + self.limit_s
        while reason := self._find_reason():
            if self.cancelled() or self._is_given_up:
                raise CellCancelledError
            if time.monotonic() >= deadline:
                self._is_given_up = True
                what = f"sandbox {self.sandbox.name} has not answered for {self.limit_s:.0f} s: {reason}"
                raise SandboxError(what, next_step="Start it, then run again: the remaining cells have no record.")
            time.sleep(_POLL_S)

    def _find_reason(self) -> str:
        """Return why the sandbox cannot be used now, on one line; empty if it can."""
        status = self.sandbox.status()
        if status.available:
            return ""
        self._last_seen_away = time.monotonic()
        return (status.reason or "it does not answer").partition("\n")[0]

    def _tell(self, happening: EventKind, cell: Cell, lane: str, text: str) -> None:
        self.tell(RunEvent(happening=happening, cell=cell, lane=lane, text=text))
