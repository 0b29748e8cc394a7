"""Compiling a candidate in a container without a GPU, off the lease, and keeping what came of it.

The builder runs the candidate's own code, so what it hands over is as hostile as the candidate: it is taken in bounded
frames, kept as an opaque file, and only ever unpacked in the candidate's own container.
"""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from runner.core.build import SOCKET_NAME
from runner.core.messages import Evidence
from runner.core.vocab import Language, Stage, Status, fault_of
from runner.core.wire import MAX_CHUNK, Channel, Failure, Gone, Kind, WireError, unpack_failed
from runner.engines import Engine, Exit, Mount, RoleSpec, Running
from runner.results.record import Outcome

ARTIFACT_NAME = "extensions.tar"
"""Name of the artefact inside the candidate's container."""

NEEDS_BUILD = frozenset({Language.CUDA})
"""Languages that are compiled before the device is leased; the others compile when they are first called."""

_POLL_S = 0.1


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
    with _folders(source) as (code, channel), _listening(channel / SOCKET_NAME) as listener:
        spec = make_spec(Mount(source=code, target="/candidate"), Mount(source=channel, target="/channel"))
        with engine.launch(spec) as running:
            receiver = _Receiver(running, time.monotonic() + timeout_s, cancelled)
            artifact, status, words, log = receiver.take(listener, keep_in, max_bytes)
            running.kill()
            ended = running.wait(10)
    exits = () if ended is None else (ended,)
    log = log or (ended.log_tail[-8192:] if ended is not None and status is not None else "")
    return Build(
        artifact=artifact,
        outcome=None if status is None else _outcome(status, words, log),
        exits=exits,
        seconds=time.monotonic() - started,
    )


class _Receiver:
    """Takes frames from one builder until it is done, fails, ends, or is out of time."""

    def __init__(self, running: Running, deadline: float, cancelled: Callable[[], bool]) -> None:
        self._running = running
        self._deadline = deadline
        self._cancelled = cancelled

    def take(
        self, listener: socket.socket, keep_in: Path, max_bytes: int
    ) -> tuple[Path | None, Status | None, str, str]:
        """(artefact, status when it failed, message, log)."""
        connection = self._accept(listener)
        if connection is None:
            return None, *self._silence()
        channel = Channel(connection, MAX_CHUNK)
        handle, name = tempfile.mkstemp(prefix="artifact-", suffix=".tar", dir=keep_in)
        path = Path(name)
        try:
            with os.fdopen(handle, "wb") as file:
                verdict = self._frames(channel, file.write, max_bytes)
            path.chmod(0o444)
            if verdict is None and path.stat().st_size:
                return path, None, "", ""
            path.unlink()
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        else:
            return None, *(verdict or (None, "", ""))
        finally:
            channel.close()

    def _frames(
        self, channel: Channel, write: Callable[[bytes], object], max_bytes: int
    ) -> tuple[Status, str, str] | None:
        taken = 0
        while True:
            try:
                channel.settimeout(max(0.1, self._deadline - time.monotonic()))
                kind, _, payload = channel.receive()
            except (Gone, TimeoutError):
                return self._silence()
            except WireError as error:
                return Status.PROTOCOL_VIOLATION, f"the builder's side: {error}", ""
            if kind is Kind.DONE:
                return None
            if kind is Kind.FAILED:
                return _failure(payload)
            taken += len(payload)
            if kind is not Kind.CHUNK or taken > max_bytes:
                return Status.PROTOCOL_VIOLATION, f"the artefact is larger than {max_bytes >> 20} MiB", ""
            write(payload)

    def _accept(self, listener: socket.socket) -> socket.socket | None:
        listener.settimeout(_POLL_S)
        while time.monotonic() < self._deadline and self._running.wait(0) is None:
            if self._cancelled():
                raise BuildCancelledError
            with suppress(TimeoutError):
                return listener.accept()[0]
        return None

    def _silence(self) -> tuple[Status, str, str]:
        if self._cancelled():
            raise BuildCancelledError
        if time.monotonic() >= self._deadline:
            return Status.TIMEOUT, "the build did not end in time", ""
        ended = self._running.wait(2)
        if ended is not None and ended.oom_killed:
            return Status.OUT_OF_MEMORY, "the build used more memory than its limit", ""
        return Status.CRASHED, "the build ended without a word", ""


def _failure(payload: bytes) -> tuple[Status, str, str]:
    try:
        failure, text = unpack_failed(payload)
    except WireError as error:
        return Status.PROTOCOL_VIOLATION, f"the builder's side: {error}", ""
    statuses = {Failure.COMPILE: Status.COMPILE_ERROR, Failure.MEMORY: Status.OUT_OF_MEMORY}
    return statuses.get(failure, Status.LOAD_ERROR), first_error(text), text[-8192:]


def first_error(log: str) -> str:
    """The line of a compiler's or Python's output that says what is wrong."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors = [line for line in lines if "error:" in line]
    return (errors[0] if errors else lines[-1] if lines else "failed without a word")[:500]


def _outcome(status: Status, words: str, log: str) -> Outcome:
    return Outcome(status=status, stage=Stage.BUILD, fault=fault_of(status), evidence=Evidence(message=words, log=log))


@contextmanager
def _folders(source: Path) -> Iterator[tuple[Path, Path]]:
    """A folder with a copy of the source and one for the socket, both readable by any user inside."""
    root = Path(tempfile.mkdtemp(prefix="build-"))
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
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(str(path))
        path.chmod(0o666)
        listener.listen(1)
        yield listener
    finally:
        listener.close()
