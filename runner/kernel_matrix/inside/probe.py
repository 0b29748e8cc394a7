"""Asks a device whether it is well, or how fast it is; no candidate code comes near this process.

``python -m kernel_matrix.inside.probe health|calibrate --out DIR --device PLATFORM [--seconds S]`` leaves
``probe.json``. ``health`` does without torch, so that it takes a moment only.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any, Dict, Optional, Sequence

from kernel_matrix.inside.atomic_write import replace_file
from kernel_matrix.inside.platform import load_platform
from kernel_matrix.model.messages import dumps, to_json

PROBE_NAME = "probe.json"
"""Name of the answer in the output folder."""

SECONDS = {"health": 0.03, "calibrate": 6.0}
"""What is asked → how long to measure unless told, seconds: a window of the clock; all operations together."""


def health(device: str, seconds: float) -> Dict[str, Any]:
    """Whether the device is well: ``passed`` (null: it could not be asked), ``reason``, ``sm_mhz``, ``seconds``."""
    found = load_platform(device).check_health(seconds)
    return {"kind": "health", **to_json(found)}


def calibration(device: str, seconds: float) -> Dict[str, Any]:
    """How fast the device is: ``device_name``, ``bytes_per_s``, ``flops_per_s``, ``torch``, ``cuda``, ``seconds``."""
    from kernel_matrix.inside.peak_measurement import calibrate  # noqa: PLC0415  # torch comes with it, and health does without

    return {"kind": "calibration", **to_json(calibrate(load_platform(device), seconds))}


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Answer one question. The exit code is 0 whenever an answer was written, whatever it says."""
    parser = argparse.ArgumentParser(prog="probe")
    parser.add_argument("question", choices=tuple(SECONDS))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", required=True, help="name of the platform")
    parser.add_argument("--seconds", type=float)
    arguments = parser.parse_args(argv)
    seconds = SECONDS[arguments.question] if arguments.seconds is None else arguments.seconds
    ask = {"health": health, "calibrate": calibration}[arguments.question]
    replace_file(arguments.out / PROBE_NAME, dumps(ask(arguments.device, seconds)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
