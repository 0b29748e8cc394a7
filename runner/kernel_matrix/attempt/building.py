"""Compiling a candidate in a container without a GPU and without a lease.

The builder runs the candidate's own code, so its output is as hostile as the candidate. It is read in bounded frames,
kept as an opaque file, and only unpacked in the candidate's own container. The builder's list of kernels is checked for
form and stored as a claim.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from kernel_matrix.attempt.buildcache import new_artifact
from kernel_matrix.attempt.contestants import CANDIDATE_FILE
from kernel_matrix.attempt.folders import accept, folders_for_all, write_for_all
from kernel_matrix.attempt.outcome import how_it_ended, outcome_of
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
from kernel_matrix.sandboxes.open_socket import listening_for_all

_POLL_S = 0.1
_LAST_MOMENTS_S = 10.0  # a builder that has sent everything has this long to exit, beside other programs too


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildResult:
    """Result of a build: an artifact, or the outcome of every cell that needs it, or neither.

    Neither means that the source needs a GPU while it is imported, or a package that the image may lack. The session
    then finds out.
    """

    artifact: Path | None = None
    outcome: Outcome | None = None
    exits: tuple[ProcessExit, ...] = ()
    seconds: float = 0.0
    kernels: tuple[KernelCode, ...] = ()
    log_tail: str = ""
    """End of the compiler's log, at most :data:`~kernel_matrix.inside.build.builder.MAX_LOG` bytes."""
    seen: BuildInfo | None = None
    """The record's part about the build; None if the builder sent nothing."""


class BuildCancelledError(Exception):
    """The build was cancelled."""


def run_build(
    sandbox: Sandbox,
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
    """Build ``source``, and keep its artifact as a new file in ``keep_in``.

    Args:
        sandbox: Sandbox that the builder runs in.
        make_spec: (code mount, channel mount) → process to start.
        source: The candidate's source.
        keep_in: Folder for the artifact.
        timeout_s: Limit for the whole build.
        max_bytes: Limit for the artifact.
        cancelled: Returns true once the run is cancelled.
        order: Kernels to compile ahead of time, sent when the builder connects; empty sends nothing.
        beside: Name → content of files beside the source.

    Raises:
        BuildCancelledError: If ``cancelled`` returned true.
        SandboxError: If the builder could not be started.
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
        with sandbox.launch(spec) as running, _killed_when(patience.ended, running):
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
    """Deadline of a build, and a test for its cancellation."""

    deadline: float
    is_cancelled: Callable[[], bool]

    def ended(self) -> bool:
        """Return True once waiting any longer is useless."""
        return self.is_cancelled() or time.monotonic() >= self.deadline


@dataclass(frozen=True, slots=True)
class _Delivery:
    """The order to send to a builder, and the limits of its answer."""

    order: bytes
    max_bytes: int
    keep_in: Path


@dataclass(slots=True)
class _Said:
    """A builder's output beside the artifact."""

    kernels: list[KernelCode] = field(default_factory=list)
    log_tail: str = ""


@dataclass(frozen=True, slots=True)
class _Trouble:
    """Reason why there is no artifact."""

    status: Status
    message: str
    log: str = ""


@contextmanager
def _killed_when(ended: Callable[[], bool], running: RunningProcess) -> Iterator[None]:
    """Kill ``running`` as soon as ``ended()`` returns true, so that its reader sees the end of the stream.

    A socket timeout would not work: it starts again with every byte that arrives.
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
    """Return the artifact as a new file, or None, and the builder's further output or the reason for its failure."""
    connection = accept(listener, running, patience.ended)
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


def _converse(channel: Channel, file: IO[bytes], delivery: _Delivery) -> _Said | _Trouble:
    """Send the order, then write incoming chunks to ``file`` until the builder reports its end.

    Raises:
        PeerGoneError: If the builder ends before that.
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
    """Find out why a builder stopped answering."""
    if patience.ended():
        return _Trouble(Status.TIMEOUT, "the build did not end in time")
    ended = running.wait(_LAST_MOMENTS_S)
    if ended is None:
        running.kill()
        return _Trouble(Status.CRASHED, "the build closed its connection but kept running, so it was killed")
    if ended.lost:
        return _Trouble(Status.CONTAINER_LOST, "the build's process was lost by the sandbox")
    if ended.oom_killed:
        return _Trouble(Status.OUT_OF_MEMORY, "the build used more memory than its limit")
    return _Trouble(Status.CRASHED, f"the build ended without an answer: {how_it_ended(ended)}")


def _failure(failure: CallFailure, text: str) -> _Said | _Trouble:
    if failure is CallFailure.LOAD and claimed_package(text):
        # A candidate's process cannot be trusted to say that a package is missing, and the image cannot be inspected
        # from here, so the judge decides. A false claim only loses the ahead-of-time build.
        return _Said(log_tail=text[-MAX_LOG:])
    statuses = {CallFailure.COMPILE: Status.COMPILE_ERROR, CallFailure.MEMORY: Status.OUT_OF_MEMORY}
    return _Trouble(statuses.get(failure, Status.LOAD_ERROR), first_error(text), useful_part(text, MAX_LOG))


def _outcome(trouble: _Trouble, ended: ProcessExit | None) -> Outcome:
    log = trouble.log or (ended.log_tail[-MAX_LOG:] if ended is not None else "")
    return outcome_of(trouble.status, Stage.BUILD, Evidence(message=trouble.message, log=log))
