"""Steadiness of a GPU during warm-up, judged by its SM clock and temperature."""

from __future__ import annotations

import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Callable, Iterator, List, Optional, Sequence

from kernel_matrix.inside.platform import SensorError, Sensors, load_platform
from kernel_matrix.model.messages import JudgeJob

UNSTEADY = "unsteady"
"""Label: clock or temperature still changed when the warm-up had to end."""
UNKNOWN = "steadiness_unknown"
"""Label: clock and temperature could not be read."""

WINDOW_S = 0.25
"""Readings over at least this time must agree."""
INTERVAL_S = 0.02
"""Least time between two readings."""
CLOCK_SPREAD = 0.01
"""Largest spread of the SM clock, as a share of the highest reading."""
TEMPERATURE_SPREAD_C = 1
"""Largest spread of the temperature, degrees: the sensor's own step."""


@dataclass(frozen=True)
class SensorReading:
    """One reading of the sensors."""

    at_s: float
    """Monotonic clock, seconds."""
    sm_mhz: int
    temperature_c: int


def last_window(readings: Sequence[SensorReading]) -> Sequence[SensorReading]:
    """Return the fewest latest readings that span :data:`WINDOW_S`; empty if all of them do not span it."""
    early = [index for index, reading in enumerate(readings) if readings[-1].at_s - reading.at_s >= WINDOW_S]
    return readings[early[-1] :] if early else ()


def agree(readings: Sequence[SensorReading]) -> bool:
    """Return whether clock and temperature stayed the same; ``False`` without readings."""
    if not readings:
        return False
    clocks = [reading.sm_mhz for reading in readings]
    temperatures = [reading.temperature_c for reading in readings]
    clock_spread = max(clocks) - min(clocks)
    return clock_spread <= CLOCK_SPREAD * max(clocks) and max(temperatures) - min(temperatures) <= TEMPERATURE_SPREAD_C


class SensorWatch:
    """Reader of the sensors at intervals, for as long as they can be read."""

    def __init__(self, sensors: Optional[Sensors], now: Callable[[], float] = time.monotonic) -> None:
        self._sensors = sensors
        self._now = now
        self._readings: List[SensorReading] = []

    @property
    def blind(self) -> bool:
        """``True`` if the sensors cannot be read, or no longer."""
        return self._sensors is None

    def start(self) -> None:
        """Discard earlier readings, which were taken under another load."""
        self._readings = []

    def steady(self) -> bool:
        """Take a reading if one is due; return whether the last ones agree, ``False`` without working sensors."""
        try:
            self._look()
        except SensorError:
            self._sensors = None
        return not self.blind and agree(last_window(self._readings))

    def _look(self) -> None:
        """Take a reading if one is due, and discard readings before the last window.

        Raises:
            SensorError: The sensors do not answer.
        """
        now = self._now()
        if self._sensors is None or (self._readings and now - self._readings[-1].at_s < INTERVAL_S):
            return
        self._readings.append(SensorReading(now, *self._sensors()))
        self._readings = list(last_window(self._readings)) or self._readings


@contextmanager
def watch_of(job: JudgeJob) -> Iterator[Optional[SensorWatch]]:
    """Provide the watch of a job's GPU; ``None`` on a CPU or with a cap of zero."""
    platform = load_platform(job.device)
    if not platform.IS_ACCELERATOR or job.protocol.steady_cap_s <= 0:
        yield None
        return
    with ExitStack() as undo:
        try:
            sensors: Optional[Sensors] = undo.enter_context(platform.sensors(job.gpu_uuid))
        except SensorError:
            sensors = None
        yield SensorWatch(sensors)
