"""The daemon that runs containers, Docker's or Podman's: its presence and its abilities."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator
from pathlib import Path

from kernel_matrix.hosts.doctor.host import Host
from kernel_matrix.platforms.check_result import CheckResult, CheckVerdict, fail, ok, warn
from kernel_matrix.platforms.versions import parse_version
from kernel_matrix.sandboxes.docker_request import DaemonInfo

_API_OF_GPUS = (1, 40)
"""Oldest version of the API that can ask for devices by name."""

_PODMAN = (4, 3)
"""Oldest version of Podman that was tried."""

_SUBORDINATE_IDS = (Path("/etc/subuid"), Path("/etc/subgid"))

_STORES = {
    "containerd": "images go by the digest of their manifest",
    "graphdriver": "images go by the digest of their configuration",
}


def check(host: Host) -> Iterator[CheckResult]:
    """Check that a daemon for Linux containers answers, can give GPUs to containers and can limit resources."""
    if not host.uses_docker:
        yield ok("Docker daemon", f"not checked: cells are to run on the sandbox {host.sandbox}")
        return
    daemon = host.docker.daemon
    if daemon is None:
        yield _report_absent(host)
        return
    yield _check_system(daemon)
    if daemon.is_podman:
        yield from _check_podman(daemon)
    yield _check_api(daemon)
    yield _report_store(daemon)
    yield _check_cgroup(daemon)


def _report_absent(host: Host) -> CheckResult:
    permission = "Permission denied" in host.docker.reason
    advice = (
        "add this user to the group `docker` and log in again"
        if permission
        else "start it (`systemctl start docker`, or Podman's: `systemctl start podman.socket`) or correct DOCKER_HOST"
    )
    needed = host.sandbox == "docker"
    without = "" if needed else "; without it cells run from unpacked images, or as local processes"
    verdict = CheckVerdict.FAIL if needed else CheckVerdict.WARN
    found = f"no daemon answers: {host.docker.reason}"
    return CheckResult(subject="Docker daemon", verdict=verdict, found=found, advice=advice + without)


def _check_system(daemon: DaemonInfo) -> CheckResult:
    system = daemon.info.get("OSType", "linux")
    found = f"{daemon.info.get('ServerVersion', 'of unknown version')} for {system} containers"
    if daemon.is_podman:
        found = f"{daemon.product} {found}, in place of Docker"
    if reason := daemon.why_unusable:
        what, _, advice = reason.partition("; ")
        return fail("Docker daemon", f"{found}: {what}", advice)
    return ok("Docker daemon", found)


def _check_podman(daemon: DaemonInfo) -> Iterator[CheckResult]:
    """Check the version of Podman, and the ids that a plain user's containers need."""
    version = str(daemon.info.get("ServerVersion", ""))
    if (parse_version(version) or ()) < _PODMAN:
        yield warn("Podman", f"{version}, which was not tried", "update it to 4.3 or newer, or use Docker")
    if daemon.rootless:
        yield _check_subordinate_ids(pwd.getpwuid(os.getuid()).pw_name)


def _check_subordinate_ids(user: str) -> CheckResult:
    missing = [str(path) for path in _SUBORDINATE_IDS if not _has_ids(path, user)]
    if missing:
        found = f"{user} has none in {' and '.join(missing)}, so a role cannot have a user of its own"
        advice = f"usermod --add-subuids 100000-165535 --add-subgids 100000-165535 {user}; podman system migrate"
        return fail("subordinate ids", found, advice)
    return ok("subordinate ids", f"{user} has some")


def _has_ids(path: Path, user: str) -> bool:
    """Return whether a line ``user:first:number`` is about this user."""
    try:
        owners = [line.partition(":")[0] for line in path.read_text(encoding="utf-8").splitlines()]
    except OSError:
        return False
    return user in owners or str(os.getuid()) in owners


def _check_api(daemon: DaemonInfo) -> CheckResult:
    if (parse_version(daemon.api_version) or ()) >= _API_OF_GPUS:
        return ok("Docker API", daemon.api_version)
    oldest = ".".join(map(str, _API_OF_GPUS))
    found = f"{daemon.api_version}, which cannot ask for GPUs"
    return warn("Docker API", found, f"update Docker to one with API {oldest} (19.03) or newer")


def _report_store(daemon: DaemonInfo) -> CheckResult:
    meaning = _STORES[daemon.image_store]
    found = f"{daemon.image_store} ({daemon.info.get('Driver', 'unknown driver')}): {meaning}"
    return ok("image store", f"{found}; a local image pinned in another kind of store must be built again")


def _check_cgroup(daemon: DaemonInfo) -> CheckResult:
    version = str(daemon.info.get("CgroupVersion", "1"))
    found = f"version {version}, driver {daemon.info.get('CgroupDriver', 'unknown')}"
    abilities = {"MemoryLimit": "memory", "PidsLimit": "the number of processes"}
    missing = [resource for ability, resource in abilities.items() if not daemon.info.get(ability, True)]
    if missing:
        limits = " and ".join(missing)
        return warn("cgroup", f"{found}: the daemon cannot limit {limits}", "boot with cgroup version 2")
    return ok("cgroup", found + (" (newer versions of Docker and systemd drop it)" if version == "1" else ""))
