"""Energy that a device takes while one contestant's calls run back to back, by the driver's counter.

The counter moves in steps of some 20 to 100 ms. So only whole steps count: energy and time between two changes of the
counter, each of which happened between two readings. What these readings leave open bounds the power.
"""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Callable, Iterator, List, Optional

from kernel_matrix.inside.platform import EnergyCounter, SensorError, load_platform
from kernel_matrix.model.enums import Regime
from kernel_matrix.model.messages import EnergyReading, JudgeJob

NO_ENERGY = "no_energy"
"""Label: there is no counter, or its steps are too coarse for these calls."""

READ_FOR_S = 1.0
"""Time of calls over which the counter is read."""
INTERVAL_S = 0.002
"""Time between two readings, beside what a reading takes."""
WIDEST = 1.1
"""Largest ratio of the longest and the shortest time that can have passed between the two changes."""


@dataclass(frozen=True)
class CounterChange:
    """A change of the counter, which happened between two readings."""

    earliest_ns: int
    """Monotonic clock when the reading before it began."""
    latest_ns: int
    """Monotonic clock when the reading that shows it had ended."""
    energy_mj: int


@contextmanager
def watched(counter: EnergyCounter) -> Iterator[List[CounterChange]]:
    """Read the counter in a thread while inside, and list its changes; none are left if it fails."""
    changes: List[CounterChange] = []
    stop = threading.Event()

    def read() -> None:
        try:
            before_ns, before_mj = time.monotonic_ns(), counter()
            while not stop.wait(INTERVAL_S):
                began_ns, energy_mj = time.monotonic_ns(), counter()
                if energy_mj != before_mj:
                    changes.append(CounterChange(before_ns, time.monotonic_ns(), energy_mj))
                before_ns, before_mj = began_ns, energy_mj
        except SensorError:
            changes.clear()

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    try:
        yield changes
    finally:
        stop.set()
        thread.join()


def measure_energy(counter: EnergyCounter, contestant: str, make_calls: Callable[[], int]) -> Optional[EnergyReading]:
    """Read the counter while ``make_calls`` makes calls, of which it returns the number, for :data:`READ_FOR_S`.

    Returns:
        The reading; None if the counter does not answer, or if its steps leave the power open by more than
        :data:`WIDEST`.
    """
    started_ns, calls = time.monotonic_ns(), 0
    with watched(counter) as changes:
        while time.monotonic_ns() - started_ns < READ_FOR_S * 1e9:
            calls += make_calls()
        ended_ns = time.monotonic_ns()
    within = [change for change in changes if change.earliest_ns >= started_ns and change.latest_ns <= ended_ns]
    if len(within) < 2:
        return None
    first, last = within[0], within[-1]
    shortest_ns, longest_ns = last.earliest_ns - first.latest_ns, last.latest_ns - first.earliest_ns
    energy_mj = last.energy_mj - first.energy_mj
    if energy_mj <= 0 or longest_ns > WIDEST * shortest_ns:
        return None
    return EnergyReading(
        contestant=contestant,
        calls=calls,
        started_ns=started_ns,
        ended_ns=ended_ns,
        energy_mj=energy_mj,
        shortest_ns=shortest_ns,
        longest_ns=longest_ns,
    )


@contextmanager
def counter_of(job: JudgeJob) -> Iterator[Optional[EnergyCounter]]:
    """Provide the energy counter of a job's GPU; None without one, or if no calls are timed on a busy device."""
    platform = load_platform(job.device)
    with ExitStack() as undo:
        counter: Optional[EnergyCounter] = None
        if platform.IS_ACCELERATOR and Regime.SUSTAINED in job.protocol.regimes:
            try:
                counter = undo.enter_context(platform.energy_counter(job.gpu_uuid))
            except SensorError:
                counter = None
        yield counter
