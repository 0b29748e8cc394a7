"""Whether a container ran out of memory, read from its control group: Podman before version 5 does not report it."""

from __future__ import annotations

import logging
import os
import select
import threading
from concurrent.futures import Future
from pathlib import Path

from kernel_matrix.sandboxes.control_groups import groups_of
from kernel_matrix.sandboxes.memory_groups import EVENTS, count_oom_kills

_log = logging.getLogger(__name__)
_PROC = Path("/proc")


def watch_for_oom(pid: int, container_id: str) -> Future[bool]:
    """Return whether the kernel has killed a process of a container for memory; known when the container has ended.

    Args:
        pid: host PID of the container's first process.
        container_id: the container's id.
    """
    answer: Future[bool] = Future()
    threading.Thread(target=_watch, args=(pid, container_id, answer), daemon=True).start()
    return answer


def _watch(pid: int, container_id: str, answer: Future[bool]) -> None:
    try:
        answer.set_result(_count_at_end(pid, container_id) > 0)
    except OSError as error:
        _log.debug("whether container %s ran out of memory is unknown: %s", container_id, error)
        answer.set_result(False)


def _count_at_end(pid: int, container_id: str) -> int:
    """Return the number of processes that were killed for memory, when the first one of the container has ended.

    The others have ended by then, and the group is still there: Podman starts a program of its own to remove it.

    Raises:
        OSError: if the process cannot be watched.
    """
    pidfd = os.pidfd_open(pid)
    try:
        counter = find_oom_counter(pid, container_id)
        if counter is None:
            return 0
        ended = select.poll()
        ended.register(pidfd, select.POLLIN)
        ended.poll()
        return count_oom_kills(counter)
    finally:
        os.close(pidfd)


def find_oom_counter(pid: int, container_id: str) -> Path | None:
    """Return the file that counts the kills of a container's group; None where there is none.

    The group's path must have the container's id: the daemon may run elsewhere, where ``pid`` is another process.
    """
    for kind, mounted_at, path in groups_of(_PROC / str(pid), "memory", _PROC / "self"):
        counter = mounted_at / path / EVENTS[kind]
        if container_id in path and counter.exists():
            return counter
    return None
