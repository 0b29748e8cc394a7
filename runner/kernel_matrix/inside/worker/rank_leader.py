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
from kernel_matrix.inside.rank_parts import parts_of_ranks
from kernel_matrix.inside.wire import (
    AWAKE_S,
    MAX_CLAIMED_BYTES,
    MAX_FROM_JUDGE,
    MAX_FROM_WORKER,
    MAX_OUTPUTS,
    CallFailure,
    Channel,
    FrameKind,
    OutputsClaim,
    PeerGoneError,
    Structure,
    WireError,
    pack_begun,
    pack_done,
    pack_failed,
    pack_lent,
    pack_outputs,
    pack_peak,
    pack_traced,
    unpack_begun,
    unpack_done,
    unpack_failed,
    unpack_lent,
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
    FrameKind.CALLS: (FrameKind.BEGUN, FrameKind.DONE, FrameKind.OUTPUTS),
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
    started: List[_Rank] = []
    for number in range(ranks):
        others = [channel, *(rank.channel for rank in started)]
        started.append(_start(code, device, RankPlace(number, ranks, store, built), others))
    with suppress(PeerGoneError):
        RankLeader(channel, started, device, artifact).serve()
    for rank in started:
        rank.connection.close()
    for rank in started:  # the judge may check the device as soon as this process has ended
        os.waitpid(rank.pid, 0)


def _start(code: Path, device: str, place: RankPlace, others: Sequence[Channel]) -> _Rank:
    """Fork a process that serves as one rank; it has none of the ``others``' connections."""
    ours, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        for channel in (*others, Channel(ours, MAX_FROM_WORKER)):
            channel.close()  # or the end of this process would not be seen
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
        self._is_in_place = False  # True while batches compute their outputs in the judge's memory

    def serve(self) -> None:
        """Answer frames until the judge says goodbye.

        Raises:
            PeerGoneError: The judge is gone.
        """
        while True:
            kind, sequence, payload, descriptors = self._channel.receive_with_descriptors()
            if kind is FrameKind.BYE:
                return
            self._read_what_is_owed()
            if kind is FrameKind.LOAD and not self._has_unpacked():
                continue
            try:
                self._carry_out(kind, sequence, payload, descriptors)
            finally:
                for descriptor in descriptors:
                    os.close(descriptor)

    def _carry_out(self, kind: FrameKind, sequence: int, payload: bytes, descriptors: Sequence[int]) -> None:
        """Pass an order on, and the answers back; of a failure, the first one alone."""
        self._pass_on(kind, sequence, payload, descriptors)
        if kind is FrameKind.OPEN and self._platform.IS_ACCELERATOR:
            self._channel.stay_awake(AWAKE_S)
            self._awake_s = AWAKE_S
        for wanted in self._answers(kind):
            found = self._gathered(wanted)
            if kind is FrameKind.BATCH_BUFFERS and found is not None and _is_mixed(found):
                self._pass_on(kind, sequence, _with_copies(payload), descriptors)
                found = self._gathered(wanted)
            if found is None:
                return
            joined = (_JOINS.get((kind, wanted)) or _JOINS.get((None, wanted), _first))(found)
            if kind is FrameKind.BATCH_BUFFERS:
                self._is_in_place = unpack_lent(joined, MAX_CLAIMED_BYTES)[1] > 0
            self._channel.send(wanted, sequence, joined)

    def _answers(self, order: FrameKind) -> Sequence[FrameKind]:
        answers = _ANSWERS.get(order, (FrameKind.READY,))
        kept = not self._hands_over and order is not FrameKind.HAND_OVER
        places = (FrameKind.PLACES,) if self._is_in_place and order is FrameKind.CALLS else ()
        return [kind for kind in (*answers, *places) if not (kept and kind is FrameKind.OUTPUTS)]

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
        if kind in (FrameKind.BUFFERS, FrameKind.BATCH_BUFFERS):
            messages = json.loads(payload)["ranks"]
            self._hands_over = any(message["outputs"] for message in messages)
            documents = [json.dumps(message).encode() for message in messages]
            lent = parts_of_ranks(descriptors, len(self._ranks))
        for rank, document, mine in zip(self._ranks, documents, lent):
            rank.owes = list(self._answers(kind))
            rank.channel.send(kind, sequence, document, mine)

    def _gathered(self, wanted: FrameKind) -> Optional[List[bytes]]:
        """Wait for this answer of all ranks, and return the payloads; pass any other one on, and return None."""
        payloads: Dict[int, bytes] = {}
        while len(payloads) < len(self._ranks):
            number = self._next_readable([n for n in range(len(self._ranks)) if n not in payloads])
            kind, payload = self._received(number)
            if kind is not wanted:
                self._channel.send(kind, 0, _with_rank(number, payload) if kind is FrameKind.FAILED else payload)
                return None
            payloads[number] = payload
        return [payloads[number] for number in range(len(self._ranks))]

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


def _with_rank(number: int, failed: bytes) -> bytes:
    """Return a failure with the number of the rank behind its text."""
    try:
        failure, text = unpack_failed(failed)
    except WireError:  # the judge refuses it
        return failed
    return pack_failed(failure, f"{text.rstrip()} (rank {number})")


def _end_like(number: int, pid: int) -> NoReturn:
    """End this process as the one of a rank has ended, which tells the host why."""
    status = os.waitpid(pid, 0)[1]
    sys.stderr.write(f"rank {number} has ended without an answer\n")
    if os.WIFSIGNALED(status):
        with suppress(OSError):  # of a signal that has no handler
            signal.signal(os.WTERMSIG(status), signal.SIG_DFL)
        os.kill(os.getpid(), os.WTERMSIG(status))
        leave(128 + os.WTERMSIG(status))  # process 1 of a namespace cannot end itself by a signal
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


def _is_mixed(payloads: Sequence[bytes]) -> bool:
    """Return True if some ranks compute the outputs of batches in place, and others do not."""
    return len({unpack_lent(payload, MAX_CLAIMED_BYTES)[1] > 0 for payload in payloads}) > 1


def _with_copies(payload: bytes) -> bytes:
    """Return an order for batches that lets all ranks copy their outputs."""
    return json.dumps({"ranks": [{**one, "in_place": False} for one in json.loads(payload)["ranks"]]}).encode()


def _captured_by_all(payloads: Sequence[bytes]) -> bytes:
    """Return that calls are captured if they are on all ranks, and the most memory that outputs take in place."""
    found = [unpack_lent(payload, MAX_CLAIMED_BYTES) for payload in payloads]
    return pack_lent(captured=all(captured for captured, _ in found), pool_bytes=max(used for _, used in found))


def _all_places(payloads: Sequence[bytes]) -> bytes:
    """Return the places of all ranks, one rank after the other; none if a rank has none."""
    return b"".join(payloads) if all(payloads) else b""


def _last_begun(payloads: Sequence[bytes]) -> bytes:
    return pack_begun(max(map(unpack_begun, payloads)))


_JOINS: Dict[Tuple[Optional[FrameKind], FrameKind], Callable[[Sequence[bytes]], bytes]] = {
    (None, FrameKind.DONE): _longest,
    (None, FrameKind.OUTPUTS): _all_outputs,
    (None, FrameKind.TRACED): _all_kernels,
    (None, FrameKind.BEGUN): _last_begun,
    (None, FrameKind.PLACES): _all_places,
    (FrameKind.CALLS, FrameKind.DONE): _first,  # the end of a batch has no payload
    (FrameKind.RELEASE, FrameKind.READY): _most_memory,
    (FrameKind.BATCH_BUFFERS, FrameKind.READY): _captured_by_all,
}
"""Order, or None for any, and kind of its answer → function that makes one answer of those of all ranks."""
