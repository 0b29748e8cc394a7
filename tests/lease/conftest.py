"""Real processes as tenants of a device, with or without a namespace of their own."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

SLEEP = ("sleep", "600")
IN_A_NAMESPACE = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")


def can_unshare() -> bool:
    """Whether this user may make a PID namespace."""
    return subprocess.run((*IN_A_NAMESPACE, "true"), check=False, capture_output=True).returncode == 0


needs_namespaces = pytest.mark.skipif(not can_unshare(), reason="this user may not make a PID namespace")


@pytest.fixture
def tenant() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a program that runs until the test ends, and all that it started with it; it has pipes."""
    started: list[subprocess.Popen[str]] = []

    def start(*argv: str) -> subprocess.Popen[str]:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        started.append(subprocess.Popen(argv or SLEEP, start_new_session=True, **pipes))
        return started[-1]

    yield start
    for process in started:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def children(pid: int) -> list[int]:
    """Children of a process, oldest first."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def end(process: subprocess.Popen[str]) -> int:
    """End a process and reap it; its PID, which is in ``/proc`` no more."""
    process.kill()
    process.communicate()
    assert not Path(f"/proc/{process.pid}").exists()
    return process.pid
