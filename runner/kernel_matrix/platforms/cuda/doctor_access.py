"""The doctor on how GPUs reach containers: CDI, the NVIDIA container toolkit, or plain device nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kernel_matrix.platforms import NO_ACCESS, Gpu, named
from kernel_matrix.platforms.check_result import CheckResult, CheckVerdict, fail, ok, warn
from kernel_matrix.platforms.cuda.device_access import CDI, DEVICES, TOOLKIT, way_into_containers

_SUBJECT = "GPUs in containers"
_WORDS = {
    CDI: "by a CDI specification",
    TOOLKIT: "by the NVIDIA container toolkit's runtime",
    DEVICES: "by their device nodes and the host's driver libraries",
}
_RENEW = "nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml (or enable nvidia-cdi-refresh)"


def examine_access(info: Mapping[str, Any], ways: Mapping[Gpu, str]) -> Iterator[CheckResult]:
    """Each GPU has a way into a container, and a CDI specification, where there is one, knows it."""
    for way in dict.fromkeys(ways.values()):
        gpus = [gpu for gpu, found in ways.items() if found == way]
        if way == NO_ACCESS:
            advice = "install the NVIDIA container toolkit, nvidia-ctk runtime configure, and restart the daemon"
            yield fail(_SUBJECT, f"{named(gpus)}: no way in", advice)
        else:
            yield ok(_SUBJECT, f"{named(gpus)}: {_WORDS[way]}")
    yield from _stale_specification(info, ways)
    if TOOLKIT in ways.values() and info.get("CgroupDriver") == "systemd":
        yield _forgotten_on_reload()


def _stale_specification(info: Mapping[str, Any], ways: Mapping[Gpu, str]) -> Iterator[CheckResult]:
    """Whether the CDI specification, where there is one, still fits; it has to where a GPU has no other way in."""
    if way_into_containers(info) != CDI:
        return
    unknown = [gpu for gpu, way in ways.items() if way != CDI]
    if unknown:
        uuids = ", ".join(gpu.uuid for gpu in unknown)
        verdict = CheckVerdict.FAIL if NO_ACCESS in ways.values() else CheckVerdict.WARN
        found = f"stale: the specification does not list {uuids}"
        yield CheckResult(subject="CDI", verdict=verdict, found=found, advice=f"make it anew: {_RENEW}")
    else:
        yield ok("CDI", "the specification lists every GPU by its UUID")


def _forgotten_on_reload() -> CheckResult:
    found = "`systemctl daemon-reload` takes GPUs away from running containers (systemd cgroups without CDI)"
    return warn("systemd", found, "nvidia-ctk system create-dev-char-symlinks --create-all, or use CDI")
