"""Doctor's check of the AMD driver, its library and the GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from kernel_matrix.platforms import PlatformInventory
from kernel_matrix.platforms.check_result import CheckResult, fail, ok, warn
from kernel_matrix.platforms.driver_checks import examine_gpus
from kernel_matrix.platforms.rocm.inside.smi_library import is_installed

_SUBJECT = "AMD driver"
_DRIVER = Path("/dev/kfd")
"""Device node of the driver's part for computing."""


def examine_driver(inventory: PlatformInventory) -> Iterator[CheckResult]:
    """Check that the driver is loaded and its library answers; say nothing on a host without either."""
    if inventory.gpus:
        yield ok(_SUBJECT, inventory.gpus[0].driver or "of unknown version")
        yield warn(
            "AMD GPUs", "what runs on them was written without one at hand", "compare times with those that you know"
        )
    elif is_installed() or _DRIVER.exists():
        yield fail(_SUBJECT, inventory.reason, "until then, AMD GPUs cannot be used here")
    yield from examine_gpus(inventory, "target")
