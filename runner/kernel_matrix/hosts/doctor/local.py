"""The process sandbox, which runs cells if no container does."""

from __future__ import annotations

from collections.abc import Iterator

from kernel_matrix.hosts.doctor.host import Host
from kernel_matrix.hosts.survey import installed
from kernel_matrix.inside import confine
from kernel_matrix.platforms.check_result import CheckResult, CheckVerdict, ok, warn
from kernel_matrix.sandboxes import SandboxStatus, open_sandbox

_SUBJECT = "local processes"


def check(host: Host) -> Iterator[CheckResult]:
    """Check that torch is installed beside the runner, and that the kernel lets the runner confine processes."""
    if host.sandbox == "docker":
        return
    status = open_sandbox("process").status()
    if status.available:
        yield _check_confinement(status)
        return
    if host.daemon is None:
        advice = "pip install 'kernel-matrix[local]'" + ("" if host.sandbox == "process" else ", or start Docker")
        yield CheckResult(subject=_SUBJECT, verdict=CheckVerdict.FAIL, found=status.reason, advice=advice)
    else:
        yield ok(_SUBJECT, "no torch beside the runner, and none needed: cells run in containers")


def _check_confinement(status: SandboxStatus) -> CheckResult:
    namespaces = status.details["namespaces"]
    torch = installed("torch") or "of unknown version"
    found = f"torch {torch}, confined by {'namespaces' if namespaces != confine.NONE else 'limits only'}"
    if namespaces != confine.NONE:
        return ok(_SUBJECT, found)
    refused = "; ".join(status.details["refused"])
    return warn(_SUBJECT, f"{found} ({refused})", "run candidates you do not trust in containers only")
