"""The driver of each platform, and the devices that answer it."""

from __future__ import annotations

from collections.abc import Iterator

from kernel_matrix.hosts.doctor.host import Host
from kernel_matrix.platforms.check_result import CheckResult
from kernel_matrix.platforms.registry import get_platform


def check(host: Host) -> Iterator[CheckResult]:
    """Check that each platform's driver is loaded and every device answers."""
    for name, inventory in host.inventories.items():
        yield from get_platform(name).examine_driver(inventory)
