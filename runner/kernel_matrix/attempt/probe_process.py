"""Starting a probe of a GPU: a folder for its one answer, and a limit for its time."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from kernel_matrix.attempt.folders import hand_over
from kernel_matrix.inside.probe import PROBE_NAME
from kernel_matrix.sandboxes import Mount, ProcessExit, RoleSpec, RunningProcess, Sandbox

_POLL_S = 0.1
_LAST_MOMENTS_S = 10.0

MAX_REASON = 2000  # characters of a probe's own words


@contextmanager
def asked(
    sandbox: Sandbox,
    make_spec: Callable[[Mount], RoleSpec],
    *,
    scratch: Path,
    started: Callable[[RunningProcess], None],
    called_off: Callable[[], bool],
    limit_s: float,
) -> Iterator[tuple[Path, ProcessExit | None]]:
    """Start a probe and wait for its end; yield the path of its answer and its exit (see :func:`await_end`).

    ``make_spec`` gets the folder for the answer and describes the process. ``started`` is called as soon as it runs.

    Raises:
        SandboxError: If the probe could not be started.
    """
    with answer_folder(scratch) as folder:
        with sandbox.launch(make_spec(shown(folder))) as running:
            started(running)
            ended = await_end(running, called_off, limit_s=limit_s)
        yield folder / PROBE_NAME, ended


def last_words(ended: ProcessExit) -> str:
    """Return the last line that a probe printed."""
    return ended.log_tail.strip().rpartition("\n")[2][:MAX_REASON]


def shown(folder: Path) -> Mount:
    """Return the mount of ``folder`` for a probe."""
    return Mount(source=folder, target="/out", writable=True)


@contextmanager
def answer_folder(scratch: Path) -> Iterator[Path]:
    """Make a folder that only a probe may write its answer to; remove it in any case."""
    root = Path(tempfile.mkdtemp(prefix="probe-", dir=scratch))
    try:
        root.chmod(0o711)
        out = root / "out"
        out.mkdir()
        hand_over(out, 0o700)
        yield out
    finally:
        shutil.rmtree(root, ignore_errors=True)


def await_end(running: RunningProcess, called_off: Callable[[], bool], *, limit_s: float) -> ProcessExit | None:
    """Wait for a process's exit, and kill it after ``limit_s`` seconds; return None if even that exit is not seen."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline and not called_off():
        ended = running.wait(_POLL_S)
        if ended is not None:
            return ended
    running.kill()
    return running.wait(_LAST_MOMENTS_S)
