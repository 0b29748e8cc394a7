"""The driver of each platform, the devices that answer it, and the links between them."""

from __future__ import annotations

from collections.abc import Iterator

from kernel_matrix.hosts.doctor.host import Host
from kernel_matrix.platforms.check_result import CheckResult, ok
from kernel_matrix.platforms.links import describe_links
from kernel_matrix.platforms.registry import get_platform


def check(host: Host) -> Iterator[CheckResult]:
    """Check that each platform's driver is loaded and every device answers, and describe the links."""
    for name, inventory in host.inventories.items():
        yield from get_platform(name).examine_driver(inventory)
        if len(inventory.gpus) > 1:
            yield ok("links", describe_links(inventory.gpus) or "the driver does not say how the GPUs are linked")
