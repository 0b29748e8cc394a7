"""The driver of each platform of GPUs, and the devices that answer it."""

from __future__ import annotations

from collections.abc import Iterator

from kernel_matrix.hosts.doctor.host import Host
from kernel_matrix.platforms.check_result import CheckResult
from kernel_matrix.platforms.registry import get_platform


def check(host: Host) -> Iterator[CheckResult]:
    """Yield whether each platform's driver is loaded, and whether each of its devices answers."""
    for name, inventory in host.inventories.items():
        yield from get_platform(name).examine_driver(inventory)
