"""Probe of a device's health, speed, or all that a platform has to do on it; no candidate code runs in this process.

``python -m kernel_matrix.inside.probe health|calibrate|conformance --out DIR --device PLATFORM [--seconds S]`` writes
``probe.json``. ``health`` does not need torch, so that it takes only a moment, and checks ``--devices N``.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, Optional, Sequence

from kernel_matrix.inside.atomic_write import replace_file
from kernel_matrix.inside.platform import load_platform
from kernel_matrix.model.messages import dumps, to_json

PROBE_NAME = "probe.json"
"""Name of the result in the output folder."""

SECONDS = {"health": 0.03, "calibrate": 6.0, "conformance": 6.0}
"""Probe → default duration in seconds: a window for the clock; all operations whose rates are measured together."""


def health(device: str, seconds: float, devices: int) -> Dict[str, Any]:
    """Return the devices' health: ``passed`` (``None``: could not be checked), ``reason``, ``sm_mhz``, ``seconds``."""
    found = load_platform(device).check_health(seconds, devices)
    return {"kind": "health", **to_json(found)}


def calibration(device: str, seconds: float) -> Dict[str, Any]:
    """Return the peak rates: ``device_name``, ``bytes_per_s``, ``flops_per_s``, ``torch``, ``cuda``, ``seconds``."""
    from kernel_matrix.inside.peak_measurement import calibrate  # noqa: PLC0415  # torch comes with it, and health does without

    return {"kind": "calibration", **to_json(calibrate(load_platform(device), seconds))}


def conformance(device: str, seconds: float) -> Dict[str, Any]:
    """Return the fields of :class:`~kernel_matrix.inside.device_measurements.DeviceMeasurements`."""
    from kernel_matrix.inside.device_conformance import measure  # noqa: PLC0415  # as above

    return dict(to_json(measure(load_platform(device), device, seconds)))


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run one probe. The exit code is 0 whenever a result was written, whatever it is."""
    parser = argparse.ArgumentParser(prog="probe")
    parser.add_argument("question", choices=tuple(SECONDS))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", required=True, help="name of the platform")
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--devices", type=int, default=1, help="number of devices, for health")
    arguments = parser.parse_args(argv)
    seconds = SECONDS[arguments.question] if arguments.seconds is None else arguments.seconds
    probes: Dict[str, Callable[[str, float], Dict[str, Any]]] = {
        "health": partial(health, devices=arguments.devices),
        "calibrate": calibration,
        "conformance": conformance,
    }
    replace_file(arguments.out / PROBE_NAME, dumps(probes[arguments.question](arguments.device, seconds)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
