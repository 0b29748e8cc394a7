"""What every probe of a GPU has: a folder for its one answer, and an end that is waited for no longer than agreed."""

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


MAX_REASON = 2000
"""Characters of a probe's own words that are told."""


@contextmanager
def asked(
    engine: Sandbox,
    make_spec: Callable[[Mount], RoleSpec],
    *,
    scratch: Path,
    started: Callable[[RunningProcess], None],
    called_off: Callable[[], bool],
    limit_s: float,
) -> Iterator[tuple[Path, ProcessExit | None]]:
    """Start a probe and wait for its end: where its answer is, if it left one, and that end (see :func:`await_end`).

    :param make_spec: folder for the answer → what to start.
    :param started: told of the process as soon as it runs.
    :raises EngineError: when it could not be started.
    """
    with answer_folder(scratch) as folder:
        with engine.launch(make_spec(shown(folder))) as running:
            started(running)
            ended = await_end(running, called_off, limit_s=limit_s)
        yield folder / PROBE_NAME, ended


def last_words(ended: ProcessExit) -> str:
    """The last line that a probe printed."""
    return ended.log_tail.strip().rpartition("\n")[2][:MAX_REASON]


def shown(folder: Path) -> Mount:
    """``folder`` as a probe sees it."""
    return Mount(source=folder, target="/out", writable=True)


@contextmanager
def answer_folder(scratch: Path) -> Iterator[Path]:
    """A folder that a probe, and nobody else, may write its answer to; removed whatever happens."""
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
    """Its own end, or after ``limit_s`` seconds that of its killing; null when even that cannot be seen."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline and not called_off():
        ended = running.wait(_POLL_S)
        if ended is not None:
            return ended
    running.kill()
    return running.wait(_LAST_MOMENTS_S)
