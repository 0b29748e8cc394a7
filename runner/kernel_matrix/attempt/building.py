"""Compiling a candidate in a container without a GPU, off the lease, and keeping what came of it.

The builder runs the candidate's own code, so what it hands over is as hostile as the candidate: it is taken in bounded
frames, kept as an opaque file, and only ever unpacked in the candidate's own container. What it says of its kernels is
checked for form and kept as a claim.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from kernel_matrix.attempt.buildcache import new_artifact
from kernel_matrix.attempt.contestants import CANDIDATE_FILE
from kernel_matrix.attempt.outcome import how_it_ended, outcome_of
from kernel_matrix.attempt.shared_paths import folders_for_all, listening_for_all, write_for_all
from kernel_matrix.inside.build.builder import MAX_LOG, SOCKET_NAME
from kernel_matrix.inside.error_excerpt import first_error, useful_part
from kernel_matrix.inside.exception_kinds import claimed_package
from kernel_matrix.inside.wire import (
    MAX_CHUNK,
    CallFailure,
    Channel,
    FrameKind,
    KernelCode,
    PeerGoneError,
    WireError,
    unpack_code,
    unpack_failed,
)
from kernel_matrix.model.enums import Stage, Status
from kernel_matrix.model.messages import Evidence
from kernel_matrix.results.record import BuildInfo, Outcome
from kernel_matrix.sandboxes import Mount, ProcessExit, RoleSpec, RunningProcess, Sandbox

ARTIFACT_NAME = "artifact.tar"
"""Name of the artefact inside the candidate's container."""

_POLL_S = 0.1
_LAST_MOMENTS_S = 1.0
"""How long a builder may take to end when it has said all it has to say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildResult:
    """What a builder left: an artefact, or the outcome of every cell that needs it, or neither.

    Neither means that the source asks for a GPU while it is imported, or for a package that the image may lack: what
    becomes of it is known where it runs.
    """

    artifact: Path | None = None
    outcome: Outcome | None = None
    exits: tuple[ProcessExit, ...] = ()
    seconds: float = 0.0
    kernels: tuple[KernelCode, ...] = ()
    log_tail: str = ""
    """The compiler's remarks, at most :data:`~kernel_matrix.inside.build.builder.MAX_LOG` bytes."""
    seen: BuildInfo | None = None
    """What records say of it; null where nothing was handed over."""


class BuildCancelledError(Exception):
    """The build was called off."""


def run_build(
    engine: Sandbox,
    make_spec: Callable[[Mount, Mount], RoleSpec],
    source: bytes,
    *,
    keep_in: Path,
    timeout_s: float,
    max_bytes: int,
    cancelled: Callable[[], bool],
    order: bytes = b"",
    beside: Mapping[str, bytes] | None = None,
) -> BuildResult:
    """Build ``source``; an artefact is kept as a new file in ``keep_in``.

    :param make_spec: (code mount, channel mount) → what to start.
    :param beside: what is in the files that it finds beside it, by name.
    :param order: what kernels to compile ahead of time, sent as soon as the builder is there; empty: nothing is sent.
    :raises BuildCancelledError: when ``cancelled`` said so.
    :raises kernel_matrix.errors.EngineError: when the builder could not be started.
    """
    started = time.monotonic()
    patience = _Patience(started + timeout_s, cancelled)
    files = {CANDIDATE_FILE: source, **(beside or {})}
    with (
        folders_for_all(keep_in, "build-", "code", "channel") as (code, channel),
        listening_for_all(channel / SOCKET_NAME) as listener,
    ):
        write_for_all(files, code)
        spec = make_spec(Mount(source=code, target="/candidate"), Mount(source=channel, target="/channel"))
        with engine.launch(spec) as running, _killed_when(patience.ended, running):
            artifact, result = _receive(listener, running, patience, _Delivery(order, max_bytes, keep_in))
            ended = running.wait(_LAST_MOMENTS_S)
            if ended is None:
                running.kill()
                ended = running.wait(10)
        if patience.is_cancelled():
            raise BuildCancelledError
    said = result if isinstance(result, _Said) else _Said()
    return BuildResult(
        artifact=artifact,
        outcome=_outcome(result, ended) if isinstance(result, _Trouble) else None,
        exits=() if ended is None else (ended,),
        seconds=time.monotonic() - started,
        kernels=tuple(said.kernels),
        log_tail=said.log_tail,
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
class _Delivery:
    """What goes to a builder, and how much may come from it."""

    order: bytes
    max_bytes: int
    keep_in: Path


@dataclass(slots=True)
class _Said:
    """What a builder said beside its artefact."""

    kernels: list[KernelCode] = field(default_factory=list)
    log_tail: str = ""


@dataclass(frozen=True, slots=True)
class _Trouble:
    """Why there is no artefact."""

    status: Status
    message: str
    log: str = ""


@contextmanager
def _killed_when(ended: Callable[[], bool], running: RunningProcess) -> Iterator[None]:
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
    listener: socket.socket, running: RunningProcess, patience: _Patience, delivery: _Delivery
) -> tuple[Path | None, _Said | _Trouble]:
    """The artefact as a new file, null where none was handed over; what was said with it, or why there is none."""
    connection = _accept(listener, running, patience)
    if connection is None:
        return None, _silence(running, patience)
    path = new_artifact(delivery.keep_in)
    try:
        with connection, path.open("wb") as file:
            result = _converse(Channel(connection, MAX_CHUNK), file, delivery)
    except PeerGoneError:
        result = _silence(running, patience)
    except BaseException:
        path.unlink()
        raise
    if isinstance(result, _Said) and path.stat().st_size:
        path.chmod(0o444)
        return path, result
    path.unlink()
    return None, result


def _accept(listener: socket.socket, running: RunningProcess, patience: _Patience) -> socket.socket | None:
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


def _converse(channel: Channel, file: IO[bytes], delivery: _Delivery) -> _Said | _Trouble:
    """Send the order, write what comes to ``file`` until the builder says that this was all.

    :raises Gone: when the builder ends before.
    """
    if delivery.order:
        channel.send(FrameKind.LOAD, 0, delivery.order)
    said, taken = _Said(), 0
    while True:
        try:
            kind, _, payload = channel.receive()
            if kind is FrameKind.DONE:
                said.log_tail = payload[-MAX_LOG:].decode("utf-8", "replace")
                return said
            if kind is FrameKind.FAILED:
                return _failure(*unpack_failed(payload))
            if kind is FrameKind.CODE:
                said.kernels = unpack_code(payload)
                continue
        except WireError as error:
            return _Trouble(Status.PROTOCOL_VIOLATION, f"the builder's side: {error}")
        taken += len(payload)
        if kind is not FrameKind.CHUNK:
            return _Trouble(Status.PROTOCOL_VIOLATION, f"the builder's side: sent {kind.name} where CHUNK was due")
        if taken > delivery.max_bytes:
            limit = f"{delivery.max_bytes >> 20} MiB"
            return _Trouble(Status.PROTOCOL_VIOLATION, f"the artefact is larger than {limit}")
        file.write(payload)


def _silence(running: RunningProcess, patience: _Patience) -> _Trouble:
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


def _failure(failure: CallFailure, text: str) -> _Said | _Trouble:
    if failure is CallFailure.LOAD and claimed_package(text):
        # Whether the image lacks it is not for the candidate's own process to say, and cannot be seen from here: the
        # judge looks. Who claims it falsely has only missed being compiled ahead.
        return _Said(log_tail=text[-MAX_LOG:])
    statuses = {CallFailure.COMPILE: Status.COMPILE_ERROR, CallFailure.MEMORY: Status.OUT_OF_MEMORY}
    return _Trouble(statuses.get(failure, Status.LOAD_ERROR), first_error(text), useful_part(text, MAX_LOG))


def _outcome(trouble: _Trouble, ended: ProcessExit | None) -> Outcome:
    log = trouble.log or (ended.log_tail[-MAX_LOG:] if ended is not None else "")
    return outcome_of(trouble.status, Stage.BUILD, Evidence(message=trouble.message, log=log))
