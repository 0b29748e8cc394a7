"""Stopping all processes of a container by its control group.

The daemon takes 10 to 20 ms for this, and a candidate is stopped for each block of calls of another contestant. Writing
to the group takes a quarter of a millisecond.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from kernel_matrix.sandboxes.control_groups import VERSION_1, VERSION_2, groups_of

_PROC = Path("/proc")
_FREEZE_S = 2.0  # processes in an uninterruptible wait cannot be stopped at once
_POLL_S = 0.0001


@dataclass(frozen=True, slots=True)
class Freezer:
    """Files of a control group that stop its processes."""

    order: Path
    """File that takes the order."""
    frozen: str
    """Order to stop."""
    thawed: str
    """Order to run on."""
    state: Path
    """File that shows whether all processes have stopped."""
    is_frozen: str
    """Line of it that says so."""

    def freeze(self) -> None:
        """Stop all processes, and wait until they have stopped.

        Raises:
            OSError: If that is not possible; then they run on.
        """
        deadline = time.monotonic() + _FREEZE_S
        while True:
            # Repeated, as the kernel's documentation of version 1 asks.
            self.order.write_text(self.frozen, encoding="ascii")
            if self.is_frozen in self.state.read_text(encoding="ascii").splitlines():
                return
            if time.monotonic() > deadline:
                self.thaw()
                raise TimeoutError(f"the processes of {self.order.parent} did not stop within {_FREEZE_S:g} s")
            time.sleep(_POLL_S)

    def thaw(self) -> None:
        """Let all processes run on.

        Raises:
            OSError: If that is not possible, for example because the group is gone.
        """
        self.order.write_text(self.thawed, encoding="ascii")


def find_freezer(pid: int, container_id: str) -> Freezer | None:
    """Return the freezer of a container, whose first process is ``pid``; None if this runner cannot write to it.

    The group's path must have the container's id: the daemon may run elsewhere, where ``pid`` is another process.
    """
    for kind, mounted_at, path in groups_of(_PROC / str(pid), "freezer", _PROC / "self"):
        freezer = _FREEZERS[kind](mounted_at / path)
        if container_id in path and not path.startswith("..") and os.access(freezer.order, os.W_OK):
            return freezer
    return None


def thaw_container(pid: int, container_id: str) -> None:
    """Let the processes of a container run on, if they were stopped by its group: a signal does not end them before."""
    freezer = find_freezer(pid, container_id) if pid else None
    if freezer is not None:
        with suppress(OSError):  # it has ended
            freezer.thaw()


def _version_1(group: Path) -> Freezer:
    state = group / "freezer.state"
    return Freezer(order=state, frozen="FROZEN", thawed="THAWED", state=state, is_frozen="FROZEN")


def _version_2(group: Path) -> Freezer:
    return Freezer(
        order=group / "cgroup.freeze", frozen="1", thawed="0", state=group / "cgroup.events", is_frozen="frozen 1"
    )


_FREEZERS = {VERSION_1: _version_1, VERSION_2: _version_2}
