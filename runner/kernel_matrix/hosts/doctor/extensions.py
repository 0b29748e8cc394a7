"""Extensions that installed packages add."""

from __future__ import annotations

from collections.abc import Iterator

from kernel_matrix.hosts.doctor.host import Host
from kernel_matrix.platforms.check_result import CheckResult, warn


def check(host: Host) -> Iterator[CheckResult]:
    """Check that every extension can be used."""
    for line in host.plugin_faults:
        yield warn("extensions", line, "repair, update or uninstall the package that adds it; everything else works")
