"""Python's side of the simulated HIP runtime: compiles it, says what goes wrong, runs programs on it.

What can go wrong, key by key, is told at the head of ``hip.c``.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from tests.inside.cuda import SimulatedCuda
from tests.sim import driver

SOURCE = Path(__file__).with_name("hip.c")


def compile_hip(folder: Path) -> Path:
    """``libamdhip64.so.7`` in ``folder``, and ``libhiprtc.so.7`` beside it."""
    driver.compile_library(folder, SOURCE, "libhiprtc.so.7", "-ldl")
    return driver.compile_library(folder, SOURCE, "libamdhip64.so.7", "-ldl")


class SimulatedHip(SimulatedCuda):
    """Programs that find the simulated runtime, and what they called."""

    VARIABLE = "KERNEL_MATRIX_SIM_HIP"
    UNDONE: ClassVar = {
        "hipStreamCreateWithFlags": "hipStreamDestroy",
        "hipModuleLoadData": "hipModuleUnload",
        "hipMalloc": "hipFree",
        "hipEventCreateWithFlags": "hipEventDestroy",
        "hiprtcCreateProgram": "hiprtcDestroyProgram",
    }
