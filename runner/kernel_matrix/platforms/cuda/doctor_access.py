"""Doctor's check of the access of containers to NVIDIA GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kernel_matrix.platforms import NO_ACCESS, Gpu
from kernel_matrix.platforms.check_result import CheckResult, CheckVerdict, ok, warn
from kernel_matrix.platforms.container_ways import CDI, DEVICES
from kernel_matrix.platforms.cuda.device_access import TOOLKIT, way_into_containers
from kernel_matrix.platforms.driver_checks import examine_ways

_WORDS = {
    CDI: "by a CDI specification",
    TOOLKIT: "by the NVIDIA container toolkit's runtime",
    DEVICES: "by their device nodes and the host's driver libraries",
}
_RENEW = "nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml (or enable nvidia-cdi-refresh)"


def examine_access(info: Mapping[str, Any], ways: Mapping[Gpu, str]) -> Iterator[CheckResult]:
    """Check that the daemon can give each GPU to a container, and that a CDI specification lists all GPUs."""
    advice = "install the NVIDIA container toolkit, nvidia-ctk runtime configure, and restart the daemon"
    yield from examine_ways(ways, _WORDS, advice)
    yield from _check_specification(info, ways)
    if TOOLKIT in ways.values() and info.get("CgroupDriver") == "systemd":
        found = "`systemctl daemon-reload` takes GPUs away from running containers (systemd cgroups without CDI)"
        yield warn("systemd", found, "nvidia-ctk system create-dev-char-symlinks --create-all, or use CDI")


def _check_specification(info: Mapping[str, Any], ways: Mapping[Gpu, str]) -> Iterator[CheckResult]:
    """Check that the CDI specification lists every GPU; a GPU that has no other way either is a failure."""
    if way_into_containers(info) != CDI:
        return
    unknown = [gpu for gpu, way in ways.items() if way != CDI]
    if unknown:
        uuids = ", ".join(gpu.uuid for gpu in unknown)
        verdict = CheckVerdict.FAIL if NO_ACCESS in ways.values() else CheckVerdict.WARN
        found = f"stale: the specification does not list {uuids}"
        yield CheckResult(subject="CDI", verdict=verdict, found=found, advice=f"renew it: {_RENEW}")
    else:
        yield ok("CDI", "the specification lists every GPU by its UUID")
