"""Compiling a candidate in a container without a GPU, off the lease, and keeping what came of it.

The builder runs the candidate's own code, so what it hands over is as hostile as the candidate: it is taken in bounded
frames, kept as an opaque file, and only ever unpacked in the candidate's own container.
"""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from runner.cell.settling import how_it_ended, outcome_of
from runner.core.build import SOCKET_NAME
from runner.core.messages import Evidence
from runner.core.vocab import Language, Stage, Status
from runner.core.wire import MAX_CHUNK, Channel, Failure, Gone, Kind, WireError, unpack_failed
from runner.engines import Engine, Exit, Mount, RoleSpec, Running
from runner.results.record import Outcome

ARTIFACT_NAME = "extensions.tar"
"""Name of the artefact inside the candidate's container."""

NEEDS_BUILD = frozenset({Language.CUDA})
"""Languages that are compiled before the device is leased; the others compile when they are first called."""

_POLL_S = 0.1
_LAST_MOMENTS_S = 1.0
"""How long a builder may take to end when it has said all it has to say."""
_LOG_TAIL = 8 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """What a builder left: an artefact, or the outcome of every cell that needs it, or neither.

    Neither means that the source asks for a GPU while it is imported: it is compiled where it runs.
    """

    artifact: Path | None = None
    outcome: Outcome | None = None
    exits: tuple[Exit, ...] = ()
    seconds: float = 0.0


class BuildCancelledError(Exception):
    """The build was called off."""


def run_build(
    engine: Engine,
    make_spec: Callable[[Mount, Mount], RoleSpec],
    source: Path,
    *,
    keep_in: Path,
    timeout_s: float,
    max_bytes: int,
    cancelled: Callable[[], bool],
) -> Build:
    """Build ``source``; an artefact is kept as a new file in ``keep_in``.

    :param make_spec: (code mount, channel mount) → what to start.
    :raises BuildCancelledError: when ``cancelled`` said so.
    :raises runner.errors.EngineError: when the builder could not be started.
    """
    started = time.monotonic()
    patience = _Patience(started + timeout_s, cancelled)
    with _folders(source, keep_in) as (code, channel), _listening(channel / SOCKET_NAME) as listener:
        spec = make_spec(Mount(source=code, target="/candidate"), Mount(source=channel, target="/channel"))
        with engine.launch(spec) as running, _killed_when(patience.ended, running):
            artifact, trouble = _receive(listener, running, patience, keep_in, max_bytes)
            ended = running.wait(_LAST_MOMENTS_S)
            if ended is None:
                running.kill()
                ended = running.wait(10)
        if patience.is_cancelled():
            raise BuildCancelledError
    return Build(
        artifact=artifact,
        outcome=None if trouble is None else _outcome(trouble, ended),
        exits=() if ended is None else (ended,),
        seconds=time.monotonic() - started,
    )


@dataclass(frozen=True, slots=True)
class _Patience:
    """How long a builder is waited for."""

    deadline: float
    is_cancelled: Callable[[], bool]

    def is_late(self) -> bool:
        """Whether its time is over."""
        return time.monotonic() >= self.deadline

    def ended(self) -> bool:
        """Whether waiting any longer makes no sense."""
        return self.is_cancelled() or self.is_late()


@dataclass(frozen=True, slots=True)
class _Trouble:
    """Why there is no artefact."""

    status: Status
    message: str
    log: str = ""


@contextmanager
def _killed_when(ended: Callable[[], bool], running: Running) -> Iterator[None]:
    """Kill ``running`` as soon as ``ended()``: whoever reads from it then sees the end of the stream.

    A timeout of the socket would not do: it starts anew with every byte that arrives.
    """
    over = threading.Event()

    def watch() -> None:
        while not over.wait(_POLL_S):
            if ended():
                running.kill()
                return

    watcher = threading.Thread(target=watch, name="build-watch", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


def _receive(
    listener: socket.socket, running: Running, patience: _Patience, keep_in: Path, max_bytes: int
) -> tuple[Path | None, _Trouble | None]:
    """The artefact as a new file in ``keep_in``, or why there is none, or neither: nothing was handed over."""
    connection = _accept(listener, running, patience)
    if connection is None:
        return None, _silence(running, patience)
    handle, name = tempfile.mkstemp(prefix="artifact-", suffix=".tar", dir=keep_in)
    path = Path(name)
    try:
        with connection, os.fdopen(handle, "wb") as file:
            trouble = _take_frames(Channel(connection, MAX_CHUNK), file.write, max_bytes)
        if trouble is None and path.stat().st_size:
            path.chmod(0o444)
            return path, None
    except Gone:
        trouble = _silence(running, patience)
    except BaseException:
        path.unlink()
        raise
    path.unlink()
    return None, trouble


def _accept(listener: socket.socket, running: Running, patience: _Patience) -> socket.socket | None:
    """The builder's connection; null when there will be none."""
    listener.settimeout(_POLL_S)
    while True:
        # Looked at before: a quick builder has connected, said everything and ended by the time we listen.
        over = patience.ended() or running.wait(0) is not None
        with suppress(TimeoutError):
            connection = listener.accept()[0]
            connection.settimeout(None)
            return connection
        if over:
            return None


def _take_frames(channel: Channel, write: Callable[[bytes], object], max_bytes: int) -> _Trouble | None:
    """Write what the builder sends until it says that this was all; what is wrong with it otherwise.

    :raises Gone: when the builder ends before.
    """
    taken = 0
    while True:
        try:
            kind, _, payload = channel.receive()
            if kind is Kind.DONE:
                return None
            if kind is Kind.FAILED:
                return _failure(*unpack_failed(payload))
        except WireError as error:
            return _Trouble(Status.PROTOCOL_VIOLATION, f"the builder's side: {error}")
        taken += len(payload)
        if kind is not Kind.CHUNK:
            return _Trouble(Status.PROTOCOL_VIOLATION, f"the builder's side: sent {kind.name} where CHUNK was due")
        if taken > max_bytes:
            return _Trouble(Status.PROTOCOL_VIOLATION, f"the artefact is larger than {max_bytes >> 20} MiB")
        write(payload)


def _silence(running: Running, patience: _Patience) -> _Trouble:
    """What a builder that says nothing more died of."""
    if patience.ended():
        return _Trouble(Status.TIMEOUT, "the build did not end in time")
    ended = running.wait(_LAST_MOMENTS_S)
    if ended is None:
        return _Trouble(Status.CRASHED, "the build closed its connection and stayed, so it was killed")
    if ended.lost:
        return _Trouble(Status.CONTAINER_LOST, "the build's process was lost by the engine")
    if ended.oom_killed:
        return _Trouble(Status.OUT_OF_MEMORY, "the build used more memory than its limit")
    return _Trouble(Status.CRASHED, f"the build ended without a word: {how_it_ended(ended)}")


def _failure(failure: Failure, text: str) -> _Trouble:
    statuses = {Failure.COMPILE: Status.COMPILE_ERROR, Failure.MEMORY: Status.OUT_OF_MEMORY}
    return _Trouble(statuses.get(failure, Status.LOAD_ERROR), first_error(text), text[-_LOG_TAIL:])


def first_error(log: str) -> str:
    """The line of a compiler's or Python's output that says what is wrong."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors = [line for line in lines if "error:" in line]
    return (errors[0] if errors else lines[-1] if lines else "failed without a word")[:500]


def _outcome(trouble: _Trouble, ended: Exit | None) -> Outcome:
    log = trouble.log or (ended.log_tail[-_LOG_TAIL:] if ended is not None else "")
    return outcome_of(trouble.status, Stage.BUILD, Evidence(message=trouble.message, log=log))


@contextmanager
def _folders(source: Path, parent: Path) -> Iterator[tuple[Path, Path]]:
    """A folder with a copy of the source and one for the socket, both readable by any user inside."""
    root = Path(tempfile.mkdtemp(prefix="build-", dir=parent))
    try:
        root.chmod(0o711)
        code, channel = root / "code", root / "channel"
        for folder in (code, channel):
            folder.mkdir(mode=0o755)
        shutil.copyfile(source, code / "candidate.py")
        (code / "candidate.py").chmod(0o444)
        yield code, channel
    finally:
        shutil.rmtree(root, ignore_errors=True)


@contextmanager
def _listening(path: Path) -> Iterator[socket.socket]:
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            # A socket's name may have 107 bytes: too few for the folders that some machines keep temporary files in.
            listener.bind(f"/proc/self/fd/{folder}/{path.name}")
            path.chmod(0o666)
            listener.listen(1)
            yield listener
    finally:
        os.close(folder)
