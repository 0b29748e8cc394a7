"""How GPUs reach containers: CDI, the NVIDIA container toolkit, or plain device nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kernel_matrix.hosts.doctor.check_result import CheckResult, CheckVerdict, fail, ok, warn
from kernel_matrix.hosts.doctor.host import Host, named
from kernel_matrix.platforms import Gpu
from kernel_matrix.sandboxes.device_access import CDI, DEVICES, NONE, TOOLKIT, container_access
from kernel_matrix.sandboxes.docker_request import DaemonInfo

_SUBJECT = "GPUs in containers"
_WORDS = {
    CDI: "by a CDI specification",
    TOOLKIT: "by the NVIDIA container toolkit's runtime",
    DEVICES: "by their device nodes and the host's driver libraries",
}
_RENEW = "nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml (or enable nvidia-cdi-refresh)"


def check(host: Host) -> Iterator[CheckResult]:
    """Each GPU has a way into a container, and a CDI specification, where there is one, knows it."""
    daemon, ways = host.daemon, host.ways
    if daemon is None or not ways:
        return
    for way in dict.fromkeys(ways.values()):
        gpus = [gpu for gpu, found in ways.items() if found == way]
        if way == NONE:
            advice = "install the NVIDIA container toolkit, nvidia-ctk runtime configure, and restart the daemon"
            yield fail(_SUBJECT, f"{named(gpus)}: no way in", advice)
        else:
            yield ok(_SUBJECT, f"{named(gpus)}: {_WORDS[way]}")
    yield from _stale_specification(daemon, ways)
    if TOOLKIT in ways.values() and daemon.info.get("CgroupDriver") == "systemd":
        yield _forgotten_on_reload()


def _stale_specification(daemon: DaemonInfo, ways: Mapping[Gpu, str]) -> Iterator[CheckResult]:
    """Whether the CDI specification, where there is one, still fits; it has to where a GPU has no other way in."""
    if container_access(daemon.info) != CDI:
        return
    unknown = [gpu for gpu, way in ways.items() if way != CDI]
    if unknown:
        uuids = ", ".join(gpu.uuid for gpu in unknown)
        verdict = CheckVerdict.FAIL if NONE in ways.values() else CheckVerdict.WARN
        found = f"stale: the specification does not list {uuids}"
        yield CheckResult(subject="CDI", verdict=verdict, found=found, advice=f"make it anew: {_RENEW}")
    else:
        yield ok("CDI", "the specification lists every GPU by its UUID")


def _forgotten_on_reload() -> CheckResult:
    found = "`systemctl daemon-reload` takes GPUs away from running containers (systemd cgroups without CDI)"
    return warn("systemd", found, "nvidia-ctk system create-dev-char-symlinks --create-all, or use CDI")
