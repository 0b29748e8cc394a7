"""Real workers in threads of this process, for sessions without processes."""
# ruff: noqa: PLC0415  # torch may be absent: only tests that need it get here

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from kernel_matrix.inside.wire import MAX_FROM_JUDGE, MAX_FROM_WORKER, Channel, PeerGoneError
from kernel_matrix.model.messages import ContestantSpec, JudgeTimeouts
from tests.inside.sessions import CANDIDATE

TIMEOUTS = JudgeTimeouts(load_s=20, first_call_s=20, call_s=20)


@contextmanager
def served(code: Path, artifact: Path | None = None, device: str = "cpu") -> Iterator[Channel]:
    """The judge's end of a connection whose other end a worker serves."""
    from kernel_matrix.inside.worker.service import Worker

    def serve() -> None:
        worker = Worker(channel, code, device, artifact)
        with suppress(PeerGoneError):
            worker.serve()
        worker._give_back()  # what the end of its process gives back elsewhere

    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    channel = Channel(theirs, MAX_FROM_JUDGE)
    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield Channel(ours, MAX_FROM_WORKER)
    finally:
        ours.close()
        thread.join(20)
        theirs.close()
    assert not thread.is_alive(), "the worker did not notice that its judge is gone"


@contextmanager
def ranks_served(code: Path, ranks: int) -> Iterator[Channel]:
    """The judge's end of a connection to the process that leads those of all ranks."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    command = [sys.executable, "-c", _LEADER, str(code), str(ranks)]
    with subprocess.Popen(command, stdin=theirs, start_new_session=True) as leader:
        theirs.close()
        try:
            yield Channel(ours, MAX_FROM_WORKER)
        finally:
            ours.close()
            os.killpg(leader.pid, signal.SIGKILL)  # as a sandbox ends with its first process


_LEADER = """
import os, socket, sys
from pathlib import Path
from kernel_matrix.inside.wire import MAX_FROM_JUDGE, Channel
from kernel_matrix.inside.worker.rank_leader import serve_ranks

channel = Channel(socket.socket(fileno=os.dup(0)), MAX_FROM_JUDGE)
serve_ranks(channel, Path(sys.argv[1]), "cpu", None, int(sys.argv[2]))
"""


@contextmanager
def side_of(code: Path, source: str, contestant: ContestantSpec = CANDIDATE) -> Iterator[Any]:
    """Make a client whose worker has a contestant of this ``source`` in its code folder."""
    from kernel_matrix.inside.judge.worker_client import WorkerClient

    (code / contestant.file).write_text(textwrap.dedent(source))
    with served(code) as channel:
        side = WorkerClient(contestant, channel, "cpu", TIMEOUTS)
        try:
            yield side
        finally:
            side.close()
