"""The judge's measurements of the machine itself, before and after a session's timed calls."""

from __future__ import annotations

from typing import Dict, List, Tuple

from kernel_matrix.inside.platform import DeviceError, load_platform
from kernel_matrix.model.messages import AnchorTimes, ClockProbeReading

NO_CLOCK_PROBE = "no_clock_probe"
"""Label: the SM clock could not be read from inside a kernel, before or after the timed calls."""
NO_ANCHOR = "no_anchor"
"""Label: the judge's own kernels could not be run, before or after the timed calls."""


class DeviceReadings:
    """SM clock and anchor kernels, measured before the session's first timed calls and after its last.

    A platform may have neither.
    """

    def __init__(self, device: str) -> None:
        self._platform = load_platform(device)
        self._taken_before = False
        self._clocks: Dict[str, ClockProbeReading] = {}
        self._anchors: Dict[str, AnchorTimes] = {}
        self.labels: List[str] = []
        """Labels of failed measurements, one per failure."""

    @property
    def clock_probes(self) -> Tuple[ClockProbeReading, ...]:
        """At most two readings."""
        return tuple(self._clocks.values())

    @property
    def anchors(self) -> Tuple[AnchorTimes, ...]:
        """At most two readings."""
        return tuple(self._anchors.values())

    def before(self) -> None:
        """Measure under the load of the warm-up, unless that was done before an earlier workload."""
        if not self._taken_before:
            self._take("before")
        self._taken_before = True

    def after(self) -> None:
        """Measure after timed calls, and replace the measurement after those of an earlier workload."""
        self._take("after")

    def _take(self, phase: str) -> None:
        try:
            clock = self._platform.measure_clock(phase)
            if clock is not None:
                self._clocks[phase] = clock
        except DeviceError:
            self.labels.append(NO_CLOCK_PROBE)
        try:
            anchor = self._platform.measure_anchor(phase)
            if anchor is not None:
                self._anchors[phase] = anchor
        except DeviceError:
            self.labels.append(NO_ANCHOR)
