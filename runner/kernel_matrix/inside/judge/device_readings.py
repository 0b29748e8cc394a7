"""What the judge measures of the machine itself, at either end of a session's timed calls."""

from __future__ import annotations

from typing import Dict, List, Tuple

from kernel_matrix.inside.judge.anchor import measure_anchor
from kernel_matrix.inside.judge.clock_probe import measure_clock
from kernel_matrix.inside.libcuda import DriverError
from kernel_matrix.model.messages import AnchorTimes, ClockProbeReading

NO_CLOCK_PROBE = "no_clock_probe"
"""Label: the SM clock could not be read from inside a kernel, before or after the timed calls."""
NO_ANCHOR = "no_anchor"
"""Label: the judge's own kernels could not be run, before or after the timed calls."""


class DeviceReadings:
    """The SM clock and the anchor kernels before the session's first timed calls and after its last; none on a CPU."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._taken_before = False
        self._clocks: Dict[str, ClockProbeReading] = {}
        self._anchors: Dict[str, AnchorTimes] = {}
        self.labels: List[str] = []
        """What could not be measured, once for each time."""

    @property
    def clock_probes(self) -> Tuple[ClockProbeReading, ...]:
        """At most two."""
        return tuple(self._clocks.values())

    @property
    def anchors(self) -> Tuple[AnchorTimes, ...]:
        """At most two."""
        return tuple(self._anchors.values())

    def before(self) -> None:
        """Measure under the load of the warm-up, unless that was done before an earlier workload."""
        if not self._taken_before:
            self._take("before")
        self._taken_before = True

    def after(self) -> None:
        """Measure after timed calls; what was measured after those of an earlier workload counts no more."""
        self._take("after")

    def _take(self, phase: str) -> None:
        if self._device != "cuda":
            return
        try:
            self._clocks[phase] = measure_clock(phase)
        except DriverError:
            self.labels.append(NO_CLOCK_PROBE)
        try:
            self._anchors[phase] = measure_anchor(phase)
        except DriverError:
            self.labels.append(NO_ANCHOR)
