"""Memory errors that each GPU has counted over its life."""

from __future__ import annotations

from kernel_matrix.hosts.doctor.host import Host, advice_about, per_gpu
from kernel_matrix.platforms import Gpu
from kernel_matrix.platforms.check_result import CheckResult, ok, warn
from kernel_matrix.platforms.registry import get_platform

_SUBJECT = "ECC"
_STATES = {True: "on", False: "off", None: "not supported"}


@per_gpu(_SUBJECT)
def check(gpu: Gpu, _host: Host) -> CheckResult:
    """None was beyond correction."""
    values = get_platform(gpu.platform).details(gpu).values
    corrected, uncorrected = values.get("ecc_corrected") or 0, values.get("ecc_uncorrected") or 0
    found = f"{_STATES[values.get('ecc')]}, {corrected} errors corrected, {uncorrected} beyond correction"
    if uncorrected:
        how = advice_about(gpu, "ecc")
        advice = f"{how}: wrong values may be the memory's; have it looked at"
        return warn(_SUBJECT, found, advice)
    return ok(_SUBJECT, found if values.get("ecc") else _STATES[values.get("ecc")])
