"""The program that gives GPUs to containers."""

from __future__ import annotations

from collections.abc import Iterator

from kernel_matrix.hosts.doctor.host import Host
from kernel_matrix.platforms.check_result import CheckResult
from kernel_matrix.platforms.registry import get_platform


def check(host: Host) -> Iterator[CheckResult]:
    """Check that the installed version has no known container escape."""
    for name in host.inventories:
        ways = {gpu: way for gpu, way in host.ways.items() if gpu.platform == name}
        yield from get_platform(name).examine_toolkit(ways)
