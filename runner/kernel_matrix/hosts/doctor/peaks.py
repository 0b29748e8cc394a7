"""Peak rates of each GPU: from the table of known models, or measured on that GPU."""

from __future__ import annotations

from kernel_matrix.hosts.doctor.host import Host, per_gpu
from kernel_matrix.platforms import Gpu
from kernel_matrix.platforms.check_result import CheckResult, ok, warn
from kernel_matrix.platforms.peaks import UNKNOWN, peak_of

_SUBJECT = "peak rates"


@per_gpu(_SUBJECT)
def check(gpu: Gpu, _host: Host) -> CheckResult:
    """Check that the peak is known, so that results can give the share of it that a kernel reached."""
    peak = peak_of(gpu)
    if peak.source == UNKNOWN:
        found = f"unknown for {gpu.name}: results do not give shares of its peak"
        return warn(_SUBJECT, found, f"kernel-matrix gpus calibrate --gpu {gpu.uuid}")
    return ok(_SUBJECT, f"{peak.source}: {peak.reference}")
