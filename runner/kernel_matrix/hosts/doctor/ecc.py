"""Memory errors that each GPU has counted since it was made."""

from __future__ import annotations

from kernel_matrix.hosts.doctor.host import Host, advice_about, per_gpu
from kernel_matrix.platforms import Gpu
from kernel_matrix.platforms.check_result import CheckResult, ok, warn
from kernel_matrix.platforms.registry import get_platform

_SUBJECT = "ECC"
_STATES = {True: "on", False: "off", None: "not supported"}


@per_gpu(_SUBJECT)
def check(gpu: Gpu, _host: Host) -> CheckResult:
    """Check that every memory error could be corrected."""
    values = get_platform(gpu.platform).details(gpu).values
    corrected, uncorrected = values.get("ecc_corrected") or 0, values.get("ecc_uncorrected") or 0
    found = f"{_STATES[values.get('ecc')]}, {corrected} errors corrected, {uncorrected} beyond correction"
    if uncorrected:
        details = advice_about(gpu, "ecc")
        return warn(_SUBJECT, found, f"{details}; wrong results may come from the memory, so have the GPU checked")
    return ok(_SUBJECT, found if values.get("ecc") else _STATES[values.get("ecc")])
