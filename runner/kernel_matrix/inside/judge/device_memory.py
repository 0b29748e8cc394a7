"""Memory of the devices during a session: who holds it, and each contestant's peak.

All numbers are the driver's, read in the judge's process. Only one contestant works at a time, so what changes during
its turn is its own; the candidate is paused in the turns of others. Use that is not accounted for is the candidate's.
"""

from __future__ import annotations

import threading
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Callable, Collection, ContextManager, Dict, Iterator, Mapping, Optional, Tuple

from kernel_matrix.inside.judge.session_ended import finding
from kernel_matrix.inside.platform import InsidePlatform
from kernel_matrix.model.enums import Role, Stage, Status

SAMPLE_S = 0.001  # interval of readings during a call; torch keeps what it has taken, so it is seen at any interval

# Memory in use that no turn explains, up to this, is not put down to the candidate: libraries load code as they go.
UNEXPLAINED_BYTES = 512 << 20

CAP_SLACK_BYTES = 256 << 20  # a cap may be exceeded by this much: allocators take blocks, and arenas whole pages


class DeviceMemory:
    """The driver's count of one device's memory, divided between the judge and the contestants. All in bytes."""

    def __init__(self, platform: InsidePlatform, cap: Optional[int] = None, rank: int = 0) -> None:
        """Create the count of the device of ``rank``, of which a cell may use ``cap`` bytes; None for all of it."""
        self._platform = platform
        self._cap = cap
        self._rank = rank
        self._overhead = 0
        self._held: Dict[str, int] = {}
        self._trusted: Dict[str, bool] = {}
        self._peaks: Dict[str, int] = {}
        self.known = False
        """False before :meth:`open`, and always on a device without memory of its own."""

    def open(self) -> None:
        """Count what is in use now as contexts; all processes have opened the device, and no source is loaded."""
        self.known = self._reading() is not None
        self._overhead = self._beyond_the_judge()
        self.limit_judge()

    @property
    def capacity(self) -> int:
        """Memory that the cell may use: the device's, or the cap."""
        total = self._free_and_total()[1]
        return total if self._cap is None else min(total, self._cap)

    @property
    def judge(self) -> int:
        """Memory that the judge's process has taken."""
        with self._platform.on_device(self._rank):
            return self._platform.own_memory()

    @property
    def contexts(self) -> int:
        """Memory that was in use before any source was loaded, and what the judge's own work has added to it."""
        return self._overhead

    @property
    def in_use(self) -> int:
        """Memory in use on the device, by all processes."""
        free, total = self._free_and_total()
        return total - free

    @property
    def trusted(self) -> int:
        """Memory that baseline and rivals hold."""
        return sum(held for name, held in self._held.items() if self._trusted[name])

    @property
    def candidate(self) -> int:
        """Memory in use that is neither the judge's nor of another contestant."""
        return max(0, self._beyond_the_judge() - self._overhead - self.trusted)

    @property
    def room(self) -> int:
        """Memory that the candidate can have, including what it holds."""
        return self.capacity - self._overhead - self.judge - self.trusted

    def peak(self, name: str) -> int:
        """Return the most that contestant ``name`` has held since :meth:`forget_peaks`; 0 if it had no turn."""
        return self._peaks.get(name, 0)

    def forget_peaks(self, known: Mapping[str, int]) -> None:
        """Begin new peaks, for the next workload, with those that are ``known`` from earlier cells."""
        self._peaks = dict(known)

    def make_room(self, name: str) -> None:
        """Make room for a call of contestant ``name``, whose peak is known."""
        self._make_room(self.peak(name) - self._held.get(name, 0))

    def _make_room(self, needed: int) -> None:
        """Give back what the judge keeps without use if ``needed`` bytes are not free."""
        if self.known and self.capacity - self.in_use < needed:
            self._platform.release_memory()

    def limit_judge(self) -> None:
        """Limit the judge's own allocator to what the others leave it of a cap."""
        if self.known and self._cap is not None:
            left = max(1, self.capacity - self._beyond_the_judge())
            with self._platform.on_device(self._rank):
                self._platform.limit_memory(left)

    @contextmanager
    def turn(self, name: str, role: Role, *, sampled: bool = True) -> Iterator[None]:
        """Count what changes in this context as memory of contestant ``name``.

        Args:
            name: The contestant.
            role: Its role.
            sampled: Read the peak within the turn. The judge must not take or release memory meanwhile.
        """
        if not self.known:
            yield
            return
        self._trusted[name] = role is not Role.CANDIDATE
        self._make_room(self.capacity // 2)  # what it will take is not known
        self._hold_cap(self.in_use, None)
        before, held = self._beyond_the_judge(), self._held.get(name, 0)
        if role is Role.CANDIDATE:
            held = max(held, self.candidate - UNEXPLAINED_BYTES)
        lowest = _LowestFree(lambda: self._free_and_total()[0])
        try:
            with lowest if sampled else nullcontext():
                yield
        finally:
            after = self._beyond_the_judge()
            highest = max(after, self._free_and_total()[1] - lowest.free - self.judge) if sampled else after
            self._held[name] = max(0, held + after - before)
            self._peaks[name] = max(self._peaks.get(name, 0), held + highest - before)
            self.limit_judge()
        self._hold_cap(highest + self.judge, role)

    def _hold_cap(self, in_use: int, role: Optional[Role]) -> None:
        """End the session if a cap is exceeded, in a contestant's turn or, without a role, by the judge."""
        if self._cap is None or in_use <= self.capacity + CAP_SLACK_BYTES:
            return
        status = Status.OUT_OF_MEMORY if role is Role.CANDIDATE else Status.DOES_NOT_FIT
        who = "the judge's" if role is None else f"the {role.value}'s"
        message = f"{in_use / (1 << 30):.2f} GiB of the device were in use in {who} turn"
        raise finding(status, Stage.VERIFY, message)

    @contextmanager
    def ending(self, names: Collection[str]) -> Iterator[None]:
        """Count nothing for these contestants, whose processes end in this context, nor for their contexts.

        The candidate must be paused.
        """
        before = self._beyond_the_judge() if self.known else 0
        yield
        if self.known:
            held = sum(self._held.pop(name, 0) for name in names)
            given_back = before - self._beyond_the_judge()
            self._overhead = max(0, self._overhead - max(0, given_back - held))

    @contextmanager
    def judge_alone(self) -> Iterator[None]:
        """Count what changes in this context, except in turns, as the judge's: code that its own work has loaded.

        The candidate must be paused.
        """
        before = self._beyond_the_judge() - self.trusted if self.known else 0
        yield
        if self.known:
            self._overhead += max(0, self._beyond_the_judge() - self.trusted - before)

    def _beyond_the_judge(self) -> int:
        return self.in_use - self.judge if self._reading() is not None else 0

    def _free_and_total(self) -> Tuple[int, int]:
        return self._reading() or (0, 0)

    def _reading(self) -> Optional[Tuple[int, int]]:
        with self._platform.on_device(self._rank):
            return self._platform.device_memory()


class SessionMemory:
    """Memory of all devices of a session, which are one for each rank: sums of what :class:`DeviceMemory` counts."""

    def __init__(self, platform: InsidePlatform, ranks: int, cap: Optional[int] = None) -> None:
        """Create the count of the devices of ``ranks``, of each of which a cell may use ``cap`` bytes."""
        self.platform = platform
        self.ranks = ranks
        self._devices = [DeviceMemory(platform, cap, rank) for rank in range(ranks)]

    @property
    def known(self) -> bool:
        """False before :meth:`open`, and always on devices without memory of their own."""
        return self._devices[0].known

    def open(self) -> None:
        """Count what is in use now as contexts; all processes have opened the devices, and no source is loaded."""
        for device in self._devices:
            device.open()

    @property
    def capacity(self) -> int:
        """Memory that the cell may use: the devices', or the caps."""
        return sum(device.capacity for device in self._devices)

    @property
    def judge(self) -> int:
        """Memory that the judge's process has taken."""
        return sum(device.judge for device in self._devices)

    @property
    def contexts(self) -> int:
        """Memory that was in use before any source was loaded, and what the judge's own work has added to it."""
        return sum(device.contexts for device in self._devices)

    @property
    def trusted(self) -> int:
        """Memory that baseline and rivals hold."""
        return sum(device.trusted for device in self._devices)

    @property
    def candidate(self) -> int:
        """Memory in use that is neither the judge's nor of another contestant."""
        return sum(device.candidate for device in self._devices)

    @property
    def room(self) -> int:
        """Memory that the candidate can have, including what it holds, if it needs as much of each device.

        The judge has more on the first device than on the others, which may have room when the first has none.
        """
        return self.ranks * min(device.room for device in self._devices)

    @property
    def judge_and_contexts(self) -> int:
        """Bytes of the judge and all contexts on the device where they take most, times the number of devices."""
        return self.ranks * max(device.judge + device.contexts for device in self._devices)

    def peak(self, name: str) -> int:
        """Return the most that contestant ``name`` has held since :meth:`forget_peaks`; 0 if it had no turn."""
        return sum(device.peak(name) for device in self._devices)

    def forget_peaks(self, known: Mapping[str, int]) -> None:
        """Begin new peaks, for the next workload, with those that are ``known`` from earlier cells."""
        for device in self._devices:
            device.forget_peaks({name: peak // self.ranks for name, peak in known.items()})

    @contextmanager
    def making_room(self, name: str) -> Iterator[None]:
        """Make room for a call of contestant ``name``, whose peak is known, and limit the judge to what it left."""
        for device in self._devices:
            device.make_room(name)
        yield
        for device in self._devices:
            device.limit_judge()

    @contextmanager
    def turn(self, name: str, role: Role, *, sampled: bool = True) -> Iterator[None]:
        """Count what changes in this context as memory of contestant ``name``; see :meth:`DeviceMemory.turn`."""
        with self._each(lambda device: device.turn(name, role, sampled=sampled)):
            yield

    @contextmanager
    def ending(self, names: Collection[str]) -> Iterator[None]:
        """Count nothing for these contestants; see :meth:`DeviceMemory.ending`."""
        with self._each(lambda device: device.ending(names)):
            yield

    @contextmanager
    def judge_alone(self) -> Iterator[None]:
        """Count what changes in this context, except in turns, as the judge's; see :meth:`DeviceMemory.judge_alone`."""
        with self._each(lambda device: device.judge_alone()):
            yield

    @contextmanager
    def _each(self, make: Callable[[DeviceMemory], ContextManager[None]]) -> Iterator[None]:
        with ExitStack() as stack:
            for device in self._devices:
                stack.enter_context(make(device))
            yield


class _LowestFree:
    """Reader of the device's free memory in a thread, which keeps the lowest value."""

    def __init__(self, read: Callable[[], int]) -> None:
        self._now = read
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self.free = read()

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_error: object) -> None:
        self._over.set()
        self._thread.join()
        self.free = min(self.free, self._now())

    def _read(self) -> None:
        while not self._over.wait(SAMPLE_S):
            self.free = min(self.free, self._now())
