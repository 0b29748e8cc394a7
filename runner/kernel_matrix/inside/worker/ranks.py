"""A contestant with several ranks: a process per rank, and the one that the judge talks to, which passes everything on.

All are processes of one sandbox, so they are one contestant, and what the leading process answers is as much a claim
as what a single worker answers. Each rank is a :class:`~kernel_matrix.inside.worker.service.Worker` on a connection of
its own; it has joined torch's default process group before candidate code runs.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
import tempfile
import time
import traceback
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Dict, List, NoReturn, Optional, Sequence, Tuple

from kernel_matrix.inside.artifact import unpack
from kernel_matrix.inside.hard_exit import leave
from kernel_matrix.inside.platform import load_platform
from kernel_matrix.inside.wire import (
    AWAKE_S,
    MAX_FROM_JUDGE,
    MAX_FROM_WORKER,
    MAX_OUTPUTS,
    CallFailure,
    Channel,
    FrameKind,
    OutputsClaim,
    PeerGoneError,
    Structure,
    pack_done,
    pack_failed,
    pack_outputs,
    pack_peak,
    pack_traced,
    unpack_done,
    unpack_outputs,
    unpack_peak,
    unpack_traced,
)
from kernel_matrix.inside.worker.rank_group import RankPlace
from kernel_matrix.inside.worker.service import Worker

_ANSWERS = {
    FrameKind.CALL: (FrameKind.DONE, FrameKind.OUTPUTS),
    FrameKind.REPLAY: (FrameKind.DONE, FrameKind.OUTPUTS),
    FrameKind.TRACE: (FrameKind.DONE, FrameKind.TRACED, FrameKind.OUTPUTS),
    FrameKind.HAND_OVER: (FrameKind.OUTPUTS,),
}
"""Order → kinds of the answers to it; all others are answered with ``READY``. Without a buffer for outputs, calls are
answered without ``OUTPUTS``."""


@dataclass
class _Rank:
    """One rank's process, as the leading process sees it."""

    pid: int
    channel: Channel
    connection: socket.socket
    owes: List[FrameKind]
    """Kinds of the answers that it has not given yet."""


def serve_ranks(channel: Channel, code: Path, device: str, artifact: Optional[Path], ranks: int) -> None:
    """Start a process per rank, and answer one judge for all of them until it says goodbye or is gone."""
    store = f"{tempfile.mkdtemp(prefix='ranks-')}/store"
    built = artifact is not None
    started = [_start(code, device, RankPlace(number, ranks, store, built)) for number in range(ranks)]
    with suppress(PeerGoneError):
        RankLeader(channel, started, device, artifact).serve()
    for rank in started:
        rank.connection.close()
    for rank in started:  # the judge may check the device as soon as this process has ended
        os.waitpid(rank.pid, 0)


def _start(code: Path, device: str, place: RankPlace) -> _Rank:
    """Fork a process that serves as one rank."""
    ours, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        _become_rank(theirs, code, device, place)
    theirs.close()
    return _Rank(child, Channel(ours, MAX_FROM_WORKER), ours, [])


def _become_rank(connection: socket.socket, code: Path, device: str, place: RankPlace) -> NoReturn:
    """Serve as one rank, and end."""
    code_of_exit = 1
    try:
        with suppress(PeerGoneError):
            Worker(Channel(connection, MAX_FROM_JUDGE), code, device, place=place).serve()
        code_of_exit = 0
    except BaseException:  # noqa: BLE001  # this process must not go on as the one that it was forked from
        traceback.print_exc()
    leave(code_of_exit)


class RankLeader:
    """Passes the judge's orders to all ranks, and their answers back as one.

    The first failure of a rank is passed on at once, since others may wait for that rank for ever. What they still owe
    is read before the next order.
    """

    def __init__(self, channel: Channel, ranks: Sequence[_Rank], device: str, artifact: Optional[Path]) -> None:
        self._channel = channel
        self._ranks = ranks
        self._platform = load_platform(device)
        self._artifact = artifact
        self._awake_s = 0.0
        self._hands_over = True  # False while there is no buffer for outputs

    def serve(self) -> None:
        """Answer frames until the judge says goodbye.

        Raises:
            PeerGoneError: The judge is gone.
        """
        while True:
            kind, sequence, payload, descriptors = self._channel.receive_with_descriptors()
            self._read_what_is_owed()
            if kind is FrameKind.BYE:
                return
            if kind is FrameKind.LOAD and not self._has_unpacked():
                continue
            self._pass_on(kind, sequence, payload, descriptors)
            for descriptor in descriptors:
                os.close(descriptor)
            if kind is FrameKind.OPEN and self._platform.IS_ACCELERATOR:
                self._channel.stay_awake(AWAKE_S)
                self._awake_s = AWAKE_S
            for wanted in self._answers(kind):
                if not self._answer(wanted, kind, sequence):
                    break

    def _answers(self, order: FrameKind) -> Sequence[FrameKind]:
        answers = _ANSWERS.get(order, (FrameKind.READY,))
        kept = not self._hands_over and order is not FrameKind.HAND_OVER
        return [kind for kind in answers if not (kept and kind is FrameKind.OUTPUTS)]

    def _has_unpacked(self) -> bool:
        """Unpack what was compiled ahead of time, once for all ranks; report a failure, and return False."""
        artifact, self._artifact = self._artifact, None
        try:
            if artifact is not None:
                unpack(artifact)
        except Exception as error:  # noqa: BLE001  # whatever a builder has packed is the candidate's
            self._channel.send(FrameKind.FAILED, 0, pack_failed(CallFailure.LOAD, f"{type(error).__name__}: {error}"))
            return False
        return True

    def _pass_on(self, kind: FrameKind, sequence: int, payload: bytes, descriptors: Sequence[int]) -> None:
        """Send an order to all ranks; buffers are each rank's own."""
        documents: List[bytes] = [payload] * len(self._ranks)
        lent: List[Sequence[int]] = [descriptors] * len(self._ranks)
        if kind is FrameKind.BUFFERS:
            messages = json.loads(payload)["ranks"]
            self._hands_over = any(message["outputs"] for message in messages)
            documents = [json.dumps(message).encode() for message in messages]
            each = len(descriptors) // len(self._ranks)
            lent = [descriptors[number * each : (number + 1) * each] for number in range(len(self._ranks))]
        for rank, document, mine in zip(self._ranks, documents, lent):
            rank.owes = list(self._answers(kind))
            rank.channel.send(kind, sequence, document, mine)

    def _answer(self, wanted: FrameKind, order: FrameKind, sequence: int) -> bool:
        """Wait for this answer of all ranks, and pass it on; return False after a failure."""
        payloads: Dict[int, bytes] = {}
        while len(payloads) < len(self._ranks):
            number = self._next_readable([n for n in range(len(self._ranks)) if n not in payloads])
            kind, payload = self._received(number)
            if kind is FrameKind.FAILED:
                self._channel.send(FrameKind.FAILED, 0, payload)
                return False
            payloads[number] = payload
        joined = _JOINS.get(wanted, _first)
        if order is FrameKind.RELEASE:
            joined = _most_memory
        self._channel.send(wanted, sequence, joined([payloads[number] for number in range(len(self._ranks))]))
        return True

    def _received(self, number: int) -> Tuple[FrameKind, bytes]:
        """Read the next answer of a rank."""
        rank = self._ranks[number]
        try:
            kind, _, payload = rank.channel.receive()
        except PeerGoneError:
            _end_like(number, rank.pid)
        rank.owes = [] if kind is FrameKind.FAILED else rank.owes[1:]
        return kind, payload

    def _read_what_is_owed(self) -> None:
        for number, rank in enumerate(self._ranks):
            while rank.owes:
                self._received(number)

    def _next_readable(self, numbers: Sequence[int]) -> int:
        """Wait until one of these ranks has sent something, and return its number."""
        until = time.monotonic() + self._awake_s
        while True:
            for number in numbers:
                if self._ranks[number].channel.has_read:
                    return number
            patience = 0.0 if time.monotonic() < until else None
            readable, _, _ = select.select([self._ranks[number].connection for number in numbers], [], [], patience)
            for number in numbers:
                if self._ranks[number].connection in readable:
                    return number


def _end_like(number: int, pid: int) -> NoReturn:
    """End this process as the one of a rank has ended, which tells the host why."""
    status = os.waitpid(pid, 0)[1]
    sys.stderr.write(f"rank {number} has ended without an answer\n")
    if os.WIFSIGNALED(status):
        signal.signal(os.WTERMSIG(status), signal.SIG_DFL)
        os.kill(os.getpid(), os.WTERMSIG(status))
    leave(os.WEXITSTATUS(status) or 1)


def _first(payloads: Sequence[bytes]) -> bytes:
    return payloads[0]


def _longest(payloads: Sequence[bytes]) -> bytes:
    """Return the device time of the slowest rank."""
    return pack_done(max(map(unpack_done, payloads)))


def _all_outputs(payloads: Sequence[bytes]) -> bytes:
    """Return the claims about the outputs of all ranks as those of one call that returns a tuple."""
    claims = [unpack_outputs(payload) for payload in payloads]
    outputs = tuple(output for claim in claims for output in claim.outputs)
    nested = any(claim.structure is Structure.OTHER for claim in claims)
    structure = Structure.OTHER if nested else Structure.TUPLE
    captured = all(claim.captured for claim in claims)
    return pack_outputs(OutputsClaim(structure, outputs[:MAX_OUTPUTS], captured))


def _all_kernels(payloads: Sequence[bytes]) -> bytes:
    """Return the kernels of all ranks, added up by their names."""
    totals: Dict[str, Tuple[int, int]] = {}
    for payload in payloads:
        for name, launches, device_ns in unpack_traced(payload):
            before = totals.get(name, (0, 0))
            totals[name] = (before[0] + launches, before[1] + device_ns)
    return pack_traced([(name, *both) for name, both in totals.items()])


def _most_memory(payloads: Sequence[bytes]) -> bytes:
    """Return the largest peak; unknown if one rank does not know its own."""
    peaks = [unpack_peak(payload) for payload in payloads]
    known = [peak for peak in peaks if peak is not None]
    return pack_peak(max(known) if len(known) == len(peaks) else None)


_JOINS: Dict[FrameKind, Callable[[Sequence[bytes]], bytes]] = {
    FrameKind.DONE: _longest,
    FrameKind.OUTPUTS: _all_outputs,
    FrameKind.TRACED: _all_kernels,
}
"""Kind of answer → function that makes one of those of all ranks."""
