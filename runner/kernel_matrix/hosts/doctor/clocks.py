"""The right to lock clocks. No clock is locked to find out, because another run may be measuring on the GPU."""

from __future__ import annotations

from collections.abc import Iterator

from kernel_matrix.hosts.doctor.host import Host
from kernel_matrix.model.enums import ClockPolicy
from kernel_matrix.platforms.check_result import CheckResult, CheckVerdict, ok
from kernel_matrix.platforms.permission import SETTINGS_VARIABLE, host_file, why_forbidden, why_not_root

_SUBJECT = "right to lock clocks"
_VERDICTS = {
    ClockPolicy.OBSERVE: CheckVerdict.OK,
    ClockPolicy.LOCK: CheckVerdict.WARN,
    ClockPolicy.REQUIRE: CheckVerdict.FAIL,
}


def check(host: Host) -> Iterator[CheckResult]:
    """Check that this user may lock clocks on this host, if the matrix wants them locked."""
    if not host.gpus:
        return
    forbidden, unprivileged = why_forbidden(), why_not_root()
    if not forbidden and not unprivileged:
        yield ok(_SUBJECT, f"this is root, and neither {SETTINGS_VARIABLE} nor {host_file()} forbids it; not tried")
        return
    policy = _strictest_policy(host)
    reason = f"forbidden on this host: {forbidden}" if forbidden else unprivileged
    meaning, advice = _consequences(policy, forbidden=bool(forbidden))
    yield CheckResult(subject=_SUBJECT, verdict=_VERDICTS[policy], found=f"{reason}; {meaning}", advice=advice)


def _strictest_policy(host: Host) -> ClockPolicy:
    """Return the strictest clock policy that any cell of the matrix may have."""
    wanted = {policy.clocks for policy in host.policies}
    return next(policy for policy in reversed(ClockPolicy) if policy in wanted)


def _consequences(policy: ClockPolicy, *, forbidden: bool) -> tuple[str, str]:
    """Return what it means for cells under ``policy``, and what to do."""
    if policy is ClockPolicy.OBSERVE:
        return "policy observe needs no such right", ""
    remedy = "ask the administrator of this host" if forbidden else "run as root"
    if policy is ClockPolicy.LOCK:
        return "policy lock records `unlocked`", f'{remedy}, or set clocks = "observe"'
    return "cells with policy require do not run", f'{remedy}, or set clocks = "lock"'
