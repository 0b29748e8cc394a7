"""AMD GPUs. So far candidates are only compiled for them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kernel_matrix.platforms import CostFigures, DeviceDetails, Gpu, PlatformInventory
from kernel_matrix.platforms.defaults import *  # noqa: F403  # members that are not there yet
from kernel_matrix.platforms.rocm.toolchains import (
    compile_limits,
    compile_target,
    compiles,
    dtype_skip_reason,
    interprets,
    language_skip_reason,
    launch_failure_reason,
    occupancy,
)

VENDOR = "amd"
TITLE = "AMD GPU"
IS_ACCELERATOR = True
NEEDS_IMAGES = True
COST = CostFigures(start_s=1.5, call_s=0.03, timed_call_s=0.0025)
"""Those of NVIDIA GPUs; none were measured."""

_DRIVER = Path("/dev/kfd")
_NOT_YET = "candidates are only compiled for AMD GPUs so far, so those of this host are not used"


def inventory() -> PlatformInventory:
    """Return no device: none is used yet."""
    return PlatformInventory(reason=_NOT_YET if _DRIVER.exists() else f"AMD: no driver is loaded ({_DRIVER} is absent)")


def processes(gpu: Gpu) -> Sequence[int]:  # noqa: ARG001  # part of the protocol
    """Return nothing: no device is used."""
    return ()


def snapshot(gpu: Gpu) -> dict[str, float | int | str | None]:  # noqa: ARG001  # part of the protocol
    """Return nothing: no device is used."""
    return {}


def sampler(gpu: Gpu) -> None:
    """Return None: no device is used."""


def details(gpu: Gpu) -> DeviceDetails:  # noqa: ARG001  # part of the protocol
    """Return nothing: no device is used."""
    return DeviceDetails(values={}, missing={})


__all__ = [
    "COST",
    "IS_ACCELERATOR",
    "NEEDS_IMAGES",
    "TITLE",
    "VENDOR",
    "compile_limits",
    "compile_target",
    "compiles",
    "details",
    "dtype_skip_reason",
    "interprets",
    "inventory",
    "language_skip_reason",
    "launch_failure_reason",
    "occupancy",
    "processes",
    "sampler",
    "snapshot",
]
