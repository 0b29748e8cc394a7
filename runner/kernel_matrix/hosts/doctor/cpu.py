"""The CPU's frequency governor: launches of small kernels, and cells on the CPU, take longer where it saves power."""

from __future__ import annotations

from collections.abc import Iterator

from kernel_matrix.hosts.doctor.host import Host
from kernel_matrix.platforms.check_result import CheckResult, ok, warn
from kernel_matrix.platforms.registry import get_platform

_SUBJECT = "CPU governor"
_WANTED = "performance"


def check(_host: Host) -> Iterator[CheckResult]:
    """It is ``performance``; virtual machines hide it."""
    cpu = get_platform("cpu")
    (device,) = cpu.inventory().gpus
    governors = cpu.details(device).values.get("governors") or ()
    found = f"{', '.join(governors) or 'hidden, as in a virtual machine'} ({device.name})"
    if set(governors) <= {_WANTED}:
        yield ok(_SUBJECT, found)
    else:
        advice = f"cpupower frequency-set --governor {_WANTED} (as root)"
        yield warn(_SUBJECT, f"{found}: times below a millisecond vary more", advice)
