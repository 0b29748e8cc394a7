"""The PID namespace of the runner: the driver lists the host's PIDs, also to a process in another namespace."""

from __future__ import annotations

from collections.abc import Iterator

from kernel_matrix.hosts.doctor.host import Host
from kernel_matrix.lease.gpu_processes import sees_driver_pids
from kernel_matrix.matrix import REQUIRE
from kernel_matrix.platforms.check_result import CheckResult, CheckVerdict, ok

_SUBJECT = "PID namespace"


def check(host: Host) -> Iterator[CheckResult]:
    """Check that the runner can find the processes on a GPU by the PIDs that the driver lists."""
    if not host.gpus:
        return
    if sees_driver_pids():
        yield ok(_SUBJECT, "the host's own, whose PIDs the driver lists")
        return
    refused = any(policy.exclusive == REQUIRE for policy in host.policies)
    meaning = "GPUs are refused" if refused else "records say `unproven` and grades are C at best"
    found = f"not the host's: the PIDs that the driver lists mean nothing here, so {meaning}"
    advice = "run it on the host, or in a container with the host's PID namespace (--pid host)"
    verdict = CheckVerdict.FAIL if refused else CheckVerdict.WARN
    yield CheckResult(subject=_SUBJECT, verdict=verdict, found=found, advice=advice)
