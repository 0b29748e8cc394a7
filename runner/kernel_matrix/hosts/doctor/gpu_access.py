"""Access of containers to GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from kernel_matrix.hosts.doctor.host import Host
from kernel_matrix.platforms.check_result import CheckResult
from kernel_matrix.platforms.registry import get_platform


def check(host: Host) -> Iterator[CheckResult]:
    """Check that the daemon can give each GPU to a container."""
    if host.daemon is None:
        return
    for name in host.inventories:
        ways = {gpu: way for gpu, way in host.ways.items() if gpu.platform == name}
        if ways:
            yield from get_platform(name).examine_access(host.daemon.info, ways)
