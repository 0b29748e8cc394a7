"""Modes of a GPU that let other processes share it, or keep a cell's own processes from sharing it."""

from __future__ import annotations

from collections.abc import Iterator

from kernel_matrix.hosts.doctor.host import Host, advice_about, per_gpu
from kernel_matrix.platforms import ComputeMode, DeviceModes, Gpu
from kernel_matrix.platforms.check_result import CheckResult, CheckVerdict, fail, ok
from kernel_matrix.platforms.registry import get_platform


def check(host: Host) -> Iterator[CheckResult]:
    """Check that a cell can have each GPU for itself, with all of its processes."""
    yield from _check_division(host)
    yield from _check_mps(host)
    yield from _check_compute_mode(host)


@per_gpu("division into parts")
def _check_division(gpu: Gpu, host: Host) -> CheckResult:
    """Check that the GPU is not divided, or that the matrix allows it."""
    allowed = any(policy.allow_mig for policy in host.policies)
    found = "on: the GPU is split, its parts share clocks, power and memory bandwidth"
    advice = f"{advice_about(gpu, 'mig')}, or policy.allow_mig = true"
    return _check_sharing(get_platform(gpu.platform).DIVISION, found, advice, on=_modes(gpu).mig, allowed=allowed)


@per_gpu("MPS")
def _check_mps(gpu: Gpu, host: Host) -> CheckResult:
    """Check that no MPS server runs on the GPU, or that the matrix allows it."""
    allowed = any(policy.allow_mps for policy in host.policies)
    found = "an MPS server has a context on it: processes of others run at the same time"
    advice = f"{advice_about(gpu, 'mps')}, or policy.allow_mps = true"
    return _check_sharing("MPS", found, advice, on=_modes(gpu).mps, allowed=allowed)


@per_gpu("compute mode")
def _check_compute_mode(gpu: Gpu, _host: Host) -> CheckResult:
    """Check that several processes may compute: a cell has a judge, a baseline and a candidate on the GPU."""
    mode = _modes(gpu).compute_mode
    if mode in (None, ComputeMode.DEFAULT):
        return ok("compute mode", "any number of processes" if mode else "the driver does not report it")
    found = f"{mode.value}: a cell's judge, baseline and candidate could not be on it together"
    advice = f"kernel-matrix sweep, if a killed runner left it so; else {advice_about(gpu, 'compute_mode')}"
    return fail("compute mode", found, advice)


def _modes(gpu: Gpu) -> DeviceModes:
    return get_platform(gpu.platform).modes(gpu)


def _check_sharing(subject: str, found: str, advice: str, *, on: bool | None, allowed: bool) -> CheckResult:
    if on is None:
        return ok(subject, "not supported, so off")
    if not on:
        return ok(subject, "off")
    meaning = "; allowed by the matrix, and records say `unproven`" if allowed else "; cells are refused"
    verdict = CheckVerdict.WARN if allowed else CheckVerdict.FAIL
    return CheckResult(subject=subject, verdict=verdict, found=found + meaning, advice=advice)
