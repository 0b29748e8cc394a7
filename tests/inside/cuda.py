"""Python's side of the simulated CUDA driver: compiles it, says what goes wrong, runs programs on it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from tests.sim import nvml
from tests.warm_command import run_piped

SOURCE = Path(__file__).with_name("cuda.c")
ROOT = Path(__file__).resolve().parents[2]

UNDONE = {
    "cuDevicePrimaryCtxRetain": "cuDevicePrimaryCtxRelease_v2",
    "cuCtxPushCurrent_v2": "cuCtxPopCurrent_v2",
    "cuStreamCreate": "cuStreamDestroy_v2",
    "cuModuleLoadData": "cuModuleUnload",
    "cuMemAlloc_v2": "cuMemFree_v2",
    "cuEventCreate": "cuEventDestroy_v2",
}
"""What each call of the driver has to be undone by."""


def compile_library(folder: Path) -> Path:
    """``libcuda.so.1`` in ``folder``."""
    return nvml.compile_library(folder, SOURCE, "libcuda.so.1")


class SimulatedCuda:
    """Programs that find the simulated driver, and what they called."""

    VARIABLE = "KERNEL_MATRIX_SIM_CUDA"
    """Variable that says what goes wrong; with ``_LOG`` behind it, the one that names the log."""
    UNDONE: ClassVar[Mapping[str, str]] = UNDONE

    def __init__(self, library: Path, log: Path) -> None:
        self._log = log
        self.environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))),
            "LD_LIBRARY_PATH": str(library.parent),
            f"{self.VARIABLE}_LOG": str(log),
        }

    def run(self, *arguments: str, wrong: str = "") -> subprocess.CompletedProcess[str]:
        """Run Python with ``arguments`` to its end; a program, ``-c``, in a process that is forked."""
        environment = {**self.environment, self.VARIABLE: wrong}
        if arguments[0] == "-c":
            return run_piped((), Path.cwd(), environment, program=arguments, limit_s=60)
        return subprocess.run(
            (sys.executable, *arguments), env=environment, capture_output=True, text=True, check=False, timeout=60
        )

    def ask(self, program: str, wrong: str = "") -> Any:
        """Run ``program`` and return its output, read as JSON."""
        done = self.run("-c", program, wrong=wrong)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def calls(self) -> Counter[str]:
        """How often each function of the driver was called, by all programs so far."""
        return Counter(self._log.read_text().split())

    def left_over(self) -> dict[str, int]:
        """Calls that were not undone, and how many of them."""
        calls = self.calls()
        return {
            made: calls[made] - calls[undone] for made, undone in self.UNDONE.items() if calls[made] != calls[undone]
        }
