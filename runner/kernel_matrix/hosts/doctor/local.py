"""The process sandbox, which runs cells if no container does."""

from __future__ import annotations

from collections.abc import Iterator

from kernel_matrix.environments.unpacked_images import unpacked_images
from kernel_matrix.hosts.doctor.host import Host
from kernel_matrix.hosts.survey import AUTO, installed, why_no_torch
from kernel_matrix.inside import confine
from kernel_matrix.platforms.check_result import CheckResult, CheckVerdict, ok, warn
from kernel_matrix.sandboxes import SandboxStatus, open_sandbox

_SUBJECT = "local processes"


def check(host: Host) -> Iterator[CheckResult]:
    """Check that torch is installed beside the runner, and that the kernel lets the runner confine processes."""
    if host.sandbox not in (AUTO, "process"):
        return
    status = open_sandbox("process").status()
    reason = status.reason or why_no_torch()
    if not reason:
        yield _check_confinement(status)
        return
    if host.daemon is None and next(unpacked_images(), None) is None:
        advice = "pip install 'kernel-matrix[local]'" + ("" if host.sandbox == "process" else ", or start Docker")
        yield CheckResult(subject=_SUBJECT, verdict=CheckVerdict.FAIL, found=reason, advice=advice)
    else:
        yield ok(_SUBJECT, "no torch beside the runner, and none needed: cells run in images")


def _check_confinement(status: SandboxStatus) -> CheckResult:
    details = status.details
    without = "Landlock" if details["landlock"] else "limits only"
    by = "namespaces" if details["namespaces"] != confine.NONE else without
    torch = installed("torch") or "of unknown version"
    weaknesses = [*details["refused"]] if details["namespaces"] == confine.NONE else []
    if details["unfiltered"]:
        weaknesses.append(f"system calls are not filtered: {details['unfiltered']}")
    memory = f"summed at intervals ({details['ungrouped']})" if details["ungrouped"] else "limited by control groups"
    found = f"torch {torch}, confined by {by}, memory is {memory}"
    if not weaknesses:
        return ok(_SUBJECT, f"{found}, system calls are filtered")
    found += f" ({'; '.join(weaknesses)})"
    return warn(_SUBJECT, found, "run candidates you do not trust in containers only")
