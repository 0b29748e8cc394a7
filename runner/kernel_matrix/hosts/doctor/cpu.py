"""The CPU's frequency governor: one that saves power slows down cells on the CPU and launches of small kernels."""

from __future__ import annotations

from collections.abc import Iterator

from kernel_matrix.hosts.doctor.host import Host
from kernel_matrix.platforms.check_result import CheckResult, ok, warn
from kernel_matrix.platforms.registry import get_platform

_SUBJECT = "CPU governor"
_WANTED = "performance"


def check(_host: Host) -> Iterator[CheckResult]:
    """Check that it is ``performance``, or hidden as in virtual machines."""
    cpu = get_platform("cpu")
    (device,) = cpu.inventory().gpus
    governors = cpu.details(device).values.get("governors") or ()
    found = f"{', '.join(governors) or 'hidden, as in a virtual machine'} ({device.name})"
    if set(governors) <= {_WANTED}:
        yield ok(_SUBJECT, found)
    else:
        advice = f"cpupower frequency-set --governor {_WANTED} (as root)"
        yield warn(_SUBJECT, f"{found}: times below a millisecond vary more", advice)
