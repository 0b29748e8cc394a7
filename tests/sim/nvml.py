"""Python's side of the simulated NVIDIA driver: compiles it, scripts its world, runs programs in it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).with_name("nvml.c")

H200 = {
    "uuid": "GPU-00000000-0000-0000-0000-0000000000a1",
    "name": "NVIDIA H200",
    "minor": 3,
    "capability": "9.0",
    "memory": 150_754_820_096,
    "memory_used": 1_048_576,
    "clock_sm": 1980,
    "clock_memory": 3201,
    "power": 118_250,
    "temperature": 41,
    "energy": 987_654_321,
    "event_reasons": 4,
    "compute": "",
    "graphics": "",
    "mps": "",
}
"""A data-centre GPU that answers everything."""

GTX_1080 = {
    "uuid": "GPU-00000000-0000-0000-0000-0000000000b2",
    "name": "NVIDIA GeForce GTX 1080",
    "minor": 0,
    "capability": "6.1",
    "memory": 8_589_934_592,
    "memory_used": 0,
    "clock_sm": 139,
    "compute": "",
    "graphics": "",
}
"""An old desktop GPU: no energy counter, no MPS list, and power and temperature it does not tell."""


def compile_library(folder: Path) -> Path:
    """``libnvidia-ml.so.1`` in ``folder``."""
    library = folder / "libnvidia-ml.so.1"
    flags = ("-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", f"-Wl,-soname,{library.name}")
    subprocess.run(("gcc", *flags, "-o", library, SOURCE), check=True)
    return library


class SimulatedDriver:
    """One world, and programs that live in it."""

    def __init__(self, library: Path, world: Path) -> None:
        self._world = world
        self.environment = {
            **os.environ,
            "LD_LIBRARY_PATH": f"{library.parent}:{os.environ.get('LD_LIBRARY_PATH', '')}",
            "KERNEL_MATRIX_SIM_WORLD": str(world),
        }

    def set(self, *gpus: dict[str, Any], **host: Any) -> None:
        """Make the world so, at once, also for programs that run already."""
        lines = [f"{key} {value}" for key, value in {"driver": "580.159.04", "cuda": 13000, **host}.items()]
        for gpu in gpus:
            lines += ["gpu", *(f"{key} {value}" for key, value in gpu.items())]
        aside = self._world.with_suffix(".new")
        aside.write_text("\n".join(lines) + "\n")
        aside.replace(self._world)

    def start(self, program: str) -> subprocess.Popen[str]:
        """Start Python on ``program``, with pipes."""
        return subprocess.Popen(
            (sys.executable, "-c", program),
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, program: str) -> Any:
        """Run Python on ``program`` to its end; what it printed, read as JSON."""
        done = subprocess.run(
            (sys.executable, "-c", program),
            env=self.environment,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            timeout=60,
        )
        return json.loads(done.stdout)
