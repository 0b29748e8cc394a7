"""Doctor's check of the NVIDIA driver, its Python bindings and the GPUs."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from kernel_matrix.platforms import PlatformInventory
from kernel_matrix.platforms.check_result import CheckResult, fail, ok, warn
from kernel_matrix.platforms.driver_checks import examine_gpus

_OTHER_MACHINES = {
    Path("/dev/dxg"): (
        "Windows Subsystem for Linux: the GPU belongs to Windows, whose processes and clocks the driver hides",
        "not tried there: use Linux on the machine itself for times that can be believed",
    ),
    Path("/etc/nv_tegra_release"): (
        "Jetson: GPU and host share their memory, and NVML answers little about such a GPU",
        "not tried there: cells may be refused, or their records say `unproven`",
    ),
}
"""File by which a machine is known → what is different there, and what follows from it."""


def examine_driver(inventory: PlatformInventory) -> Iterator[CheckResult]:
    """Check that the driver is loaded and matches its library, and that every GPU answers."""
    yield _check_bindings()
    yield from (warn("machine", *words) for path, words in _OTHER_MACHINES.items() if path.exists())
    gpus, reason = inventory.gpus, inventory.reason
    if gpus:
        driver = f"{gpus[0].driver or 'of unknown version'}, runs CUDA up to {gpus[0].cuda_driver or 'unknown'}"
        yield ok("NVIDIA driver", driver)
    elif _library_is_installed():
        yield fail("NVIDIA driver", reason, "until then, cells for GPUs cannot run here")
    else:
        yield ok("NVIDIA driver", f"none, and so no GPU: {reason}")
    yield from examine_gpus(inventory, "compute capability")


def _library_is_installed() -> bool:
    """Return whether the driver's library is installed; if it is, a driver that does not answer is a fault."""
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return False
    return True


def _check_bindings() -> CheckResult:
    """Check that the module ``pynvml`` is NVIDIA's own."""
    subject, bindings = "NVML bindings", f"nvidia-ml-py {version('nvidia-ml-py')}"
    try:
        other = version("pynvml")
    except PackageNotFoundError:
        return ok(subject, bindings)
    found = f"{bindings}, but also pynvml {other}, which has a module of the same name"
    return warn(subject, found, "pip uninstall pynvml, then pip install --force-reinstall nvidia-ml-py")
