"""Modes that decide who else can be on a GPU, and whether a cell's own processes can be on it together."""

from __future__ import annotations

from collections.abc import Iterator

from kernel_matrix.hosts.doctor.host import Host, advice_about, per_gpu
from kernel_matrix.platforms import ComputeMode, DeviceModes, Gpu
from kernel_matrix.platforms.check_result import CheckResult, CheckVerdict, fail, ok
from kernel_matrix.platforms.registry import get_platform


def check(host: Host) -> Iterator[CheckResult]:
    """A cell can be alone on each GPU, with all of its processes."""
    yield from _mig(host)
    yield from _mps(host)
    yield from _compute_mode(host)


@per_gpu("MIG")
def _mig(gpu: Gpu, host: Host) -> CheckResult:
    """MIG is off, or the matrix takes a GPU that is split."""
    allowed = any(policy.allow_mig for policy in host.policies)
    found = "on: the GPU is split, its parts share clocks, power and memory bandwidth"
    advice = f"{advice_about(gpu, 'mig')}, or policy.allow_mig = true"
    return _shared("MIG", found, advice, on=_modes(gpu).mig, allowed=allowed)


@per_gpu("MPS")
def _mps(gpu: Gpu, host: Host) -> CheckResult:
    """No MPS server shares the GPU out, or the matrix takes one that is shared."""
    allowed = any(policy.allow_mps for policy in host.policies)
    found = "an MPS server has a context on it: processes of others run at the same time"
    advice = f"{advice_about(gpu, 'mps')}, or policy.allow_mps = true"
    return _shared("MPS", found, advice, on=_modes(gpu).mps, allowed=allowed)


@per_gpu("compute mode")
def _compute_mode(gpu: Gpu, _host: Host) -> CheckResult:
    """Several processes may compute: a cell has a judge, a baseline and a candidate on the GPU."""
    mode = _modes(gpu).compute_mode
    if mode in (None, ComputeMode.DEFAULT):
        return ok("compute mode", "any number of processes" if mode else "the driver does not say")
    found = f"{mode.value}: a cell's judge, baseline and candidate could not be on it together"
    how = advice_about(gpu, "compute_mode")
    advice = f"kernel-matrix sweep, where a killed runner left it so; else {how}"
    return fail("compute mode", found, advice)


def _modes(gpu: Gpu) -> DeviceModes:
    return get_platform(gpu.platform).modes(gpu)


def _shared(subject: str, found: str, advice: str, *, on: bool | None, allowed: bool) -> CheckResult:
    if on is None:
        return ok(subject, "not supported, so off")
    if not on:
        return ok(subject, "off")
    meaning = "; allowed by the matrix, and records say `unproven`" if allowed else "; cells are refused"
    verdict = CheckVerdict.WARN if allowed else CheckVerdict.FAIL
    return CheckResult(subject=subject, verdict=verdict, found=found + meaning, advice=advice)
