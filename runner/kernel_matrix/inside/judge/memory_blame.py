"""Who is at fault when a device runs out of memory.

A contestant's own words decide nothing. The room that the candidate had is what the driver's count leaves of the
device when judge and other contestants are taken off. The candidate is at fault if it had the room of an otherwise
empty device, and more than the reference needs by a margin; or if the memory that another side lacks lies with it
between its calls. Otherwise the cell does not fit.
"""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Callable, Collection, ContextManager, Iterator, Mapping, Optional

from kernel_matrix.inside.judge.device_memory import UNEXPLAINED_BYTES, SessionMemory
from kernel_matrix.inside.judge.session_ended import SessionEnded
from kernel_matrix.model.enums import Role, Status

if TYPE_CHECKING:
    from kernel_matrix.inside.judge.pause import CandidatePause
    from kernel_matrix.inside.judge.worker_client import WorkerClient

MARGIN_SHARE = 0.25  # a candidate may use this much more than the reference: other tiles, a copy of a small operand
MARGIN_BYTES = 512 << 20  # or this much, if that is more: libraries' workspaces and loaded code have about this size
RESERVE_BYTES = 2 << 30  # what three contexts, buffers that flush caches, and the judge's chunks take of any device
HELD_OUTPUTS = 2  # outputs lie twice on an otherwise empty device: in the lent buffer, and as the judge's copy

# Once the baseline has ended, the host gives the judge 20 s to end as well.
_GONE_S = 2.0  # contestants that are dismissed to make room for the candidate get this long to end
_ALONE_S = 10.0  # limit of the call that the candidate then repeats

SHORTAGES = frozenset({Status.OUT_OF_MEMORY, Status.DOES_NOT_FIT})
"""Statuses that :class:`Shortage` decides between."""


@dataclass(frozen=True)
class Shortage:
    """State of the device's memory when somebody lacked it. All in bytes."""

    capacity: int
    judge: int
    others: int
    """Held by baseline and rivals."""
    contexts: int
    candidate: int
    room: int
    """What the candidate could have had, including what it held."""
    reference: int
    """The most that the baseline has taken, with its parameters."""
    given: int
    """What every contestant holds: parameters, and the buffer that flushes the cache."""
    empty: int
    """What the candidate could have on an otherwise empty device."""
    ranks: int = 1
    """Number of devices, whose memory is counted together."""

    @classmethod
    def of(cls, memory: SessionMemory, *, baseline: str, given: int, inputs: int, outputs: int) -> Shortage:
        """Take the state of ``memory`` while the judge still has everything that it had when memory ran out."""
        capacity = memory.capacity
        return cls(
            capacity=capacity,
            judge=memory.judge,
            others=memory.trusted,
            contexts=memory.contexts,
            candidate=memory.candidate,
            room=memory.room,
            reference=memory.peak(baseline),
            given=given,
            empty=capacity - inputs - HELD_OUTPUTS * outputs - memory.ranks * RESERVE_BYTES,
            ranks=memory.ranks,
        )

    @property
    def margin(self) -> int:
        """Memory that the candidate may use beyond what the reference uses."""
        return max(self.ranks * MARGIN_BYTES, int(MARGIN_SHARE * max(0, self.reference - self.given)))

    @property
    def needed(self) -> int:
        """Room with which the candidate has no excuse to lack memory, if it uses no more than its margin."""
        return max(self.reference, self.given) + self.margin

    @property
    def undecided(self) -> bool:
        """True if there was room for the reference, but less than on an otherwise empty device."""
        return self.needed <= self.room < self.empty

    def keeps_too_much(self, held: int) -> bool:
        """Return True if ``held``, what the candidate has between its calls, is more than it is given and a margin."""
        return held > self.given + self.margin

    def is_own_fault(self, used: int) -> bool:
        """Return True if a candidate that has used so much had no reason to lack memory, or needs more than there is.

        With less than the room that it had it did not lack any, whatever it says.
        """
        return used <= self.room or used > max(self.needed, self.empty)

    def describe(self, ended: SessionEnded, status: Status, because: str) -> SessionEnded:
        """Return ``ended`` with ``status`` and these numbers; ``because`` begins the message."""
        numbers = (
            f"the device has {_gib(self.capacity)}; held by the judge {_gib(self.judge)}, by baseline and rivals "
            f"{_gib(self.others)}, by the candidate {_gib(self.candidate)}, contexts {_gib(self.contexts)}; room for "
            f"the candidate {_gib(self.room)}, on an otherwise empty device {_gib(self.empty)}; the reference took "
            f"{_gib(self.reference)} at most"
        )
        message = f"{because}: {ended.evidence.message[:500]}; {numbers}"
        return SessionEnded(status, ended.stage, replace(ended.evidence, message=message))


class MemoryBlame:
    """Decides who is at fault for too little memory, by the driver's numbers alone."""

    def __init__(self, memory: SessionMemory, clients: Mapping[str, WorkerClient], pause: CandidatePause) -> None:
        self._memory = memory
        self._clients = clients
        self._pause = pause

    def needed_bytes(self, outputs: int) -> Optional[int]:
        """Return the least memory with which the reference can be its own candidate; None if it is not known.

        There must be room for two copies of the inputs, while they are lent; for the inputs and what a call takes; for
        the inputs and two copies of the ``outputs`` (in bytes), while they are compared; and each time for a reserve.
        """
        if not (self._memory.known and self._pause.works):
            return None
        inputs = self._baseline.lent_bytes[0]
        took = max(self._memory.peak(self._baseline.name), self._baseline.given_bytes)
        return inputs + max(inputs, took, HELD_OUTPUTS * outputs) + self._memory.ranks * RESERVE_BYTES

    def shortage(self, ended: SessionEnded) -> Optional[Shortage]:
        """Return the state of the device's memory, if that is what ended a workload, and if it can be known."""
        if ended.status not in SHORTAGES or not self._memory.known:
            return None
        inputs, outputs = self._candidate.lent_bytes
        given = self._candidate.given_bytes
        return Shortage.of(self._memory, baseline=self._baseline.name, given=given, inputs=inputs, outputs=outputs)

    def decide(self, ended: SessionEnded, shortage: Shortage, forget_reference: Callable[[], None]) -> SessionEnded:
        """Return ``ended`` with the right status, and with numbers.

        Args:
            ended: The end of a workload, as the side that lacked memory has reported it.
            shortage: The state of the device's memory then.
            forget_reference: Frees what the judge has on the device.
        """
        try:
            if ended.status is Status.OUT_OF_MEMORY:
                return self._decide_for_candidate(ended, shortage, forget_reference)
            return self._decide_for_others(ended, shortage)
        except SessionEnded as found:  # the candidate, asked to give memory back, failed
            return found.at(workload=ended.evidence.workload)

    def _decide_for_candidate(
        self, ended: SessionEnded, shortage: Shortage, forget_reference: Callable[[], None]
    ) -> SessionEnded:
        """Decide if the candidate says that it lacked memory."""
        status, because = Status.OUT_OF_MEMORY, "the candidate had room for what the reference needs"
        # The numbers of others can be trusted only if the candidate was paused in their turns.
        if self._pause.works and shortage.room < shortage.needed:
            status, because = Status.DOES_NOT_FIT, "the candidate had no room for what the reference needs"
        elif self._pause.works and shortage.undecided and self._candidate.is_lent:
            forget_reference()
            used = self._use_alone()
            if used is not None and not shortage.is_own_fault(used):
                status = Status.DOES_NOT_FIT
                because = f"the candidate needs {_gib(used)}, which an otherwise empty device would have"
        return shortage.describe(ended, status, because)

    def _use_alone(self) -> Optional[int]:
        """Return how much memory the candidate's last call takes without the others; None if it fails again."""
        others = [client for client in self._clients.values() if client is not self._candidate]
        self._pause.pause()
        with self._memory.ending([client.name for client in others]):
            for client in others:
                client.close()
                client.gone(_GONE_S)
        self._pause.resume()
        self._memory.platform.release_memory()
        self._memory.forget_peaks({})
        try:
            with watching(self._memory, self._clients, Role.CANDIDATE):
                self._candidate.repeat(_ALONE_S)
        except SessionEnded:
            return None
        return self._memory.peak(self._candidate.name)

    def _decide_for_others(self, ended: SessionEnded, shortage: Shortage) -> SessionEnded:
        """Decide if the judge or another contestant lacked memory."""
        self._candidate.give_back_memory()
        if shortage.keeps_too_much(self._memory.candidate - self._memory.ranks * UNEXPLAINED_BYTES):
            because = "the candidate keeps memory between its calls that another side lacks"
            return shortage.describe(ended, Status.OUT_OF_MEMORY, because)
        return shortage.describe(ended, Status.DOES_NOT_FIT, "there is too little memory for this cell")

    @property
    def _candidate(self) -> WorkerClient:
        return next(client for client in self._clients.values() if client.role is Role.CANDIDATE)

    @property
    def _baseline(self) -> WorkerClient:
        return next(client for client in self._clients.values() if client.role is Role.BASELINE)


@contextmanager
def watching(memory: SessionMemory, clients: Mapping[str, WorkerClient], *roles: Role) -> Iterator[None]:
    """Watch the device's memory in the calls of contestants with these roles."""
    with _each_call_in(clients, roles, lambda client: memory.turn(client.name, client.role)):
        yield


@contextmanager
def making_room(memory: SessionMemory, clients: Mapping[str, WorkerClient]) -> Iterator[None]:
    """Let the judge give back what it keeps without use before calls that need the memory."""
    with _each_call_in(clients, tuple(Role), lambda client: memory.making_room(client.name)):
        yield


@contextmanager
def _each_call_in(
    clients: Mapping[str, WorkerClient], roles: Collection[Role], make: Callable[[WorkerClient], ContextManager[None]]
) -> Iterator[None]:
    """Enter a context that ``make`` makes for each call of contestants with these roles."""
    chosen = [client for client in clients.values() if client.role in roles]
    for client in chosen:
        client.watching = partial(make, client)
    try:
        yield
    finally:
        for client in chosen:
            client.watching = nullcontext


def _gib(nbytes: int) -> str:
    return f"{nbytes / (1 << 30):.2f} GiB"
