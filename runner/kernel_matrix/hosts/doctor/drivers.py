"""The driver of each platform of GPUs, and the devices that answer it."""

from __future__ import annotations

from collections.abc import Iterator

from kernel_matrix.hosts.doctor.host import Host
from kernel_matrix.platforms.check_result import CheckResult, warn
from kernel_matrix.platforms.registry import get_platform, problems


def check(host: Host) -> Iterator[CheckResult]:
    """Every platform can be used, its driver is loaded, and every device answers."""
    for line in problems():
        yield warn("platforms", line, "repair or uninstall the package that brings it; everything else works")
    for name, inventory in host.inventories.items():
        yield from get_platform(name).examine_driver(inventory)
