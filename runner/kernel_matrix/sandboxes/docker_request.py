"""The create request of a role's container. These functions are pure: none of them talks to a daemon."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from docker.constants import DEFAULT_DOCKER_API_VERSION
from docker.types import ContainerConfig, DeviceRequest, Healthcheck, HostConfig, LogConfig, Mount, Ulimit

from kernel_matrix.errors import ImageError, SandboxError
from kernel_matrix.platforms import NO_ACCESS, DeviceAccess, Gpu
from kernel_matrix.platforms.container_ways import is_podman
from kernel_matrix.platforms.registry import container_access, get_platform, platforms
from kernel_matrix.sandboxes import PACKAGE_TARGET, Isolation, RoleSpec
from kernel_matrix.sandboxes.role_environment import SCRATCH, command, environment, package_mounts

LABEL = "kernel-matrix"
OWNER_LABEL = f"{LABEL}.owner"


@dataclass(frozen=True, slots=True)
class DaemonInfo:
    """Properties of a Docker daemon, as it reports them."""

    info: Mapping[str, Any]
    """Answer of ``/info``; empty if there is no daemon."""
    api_version: str = DEFAULT_DOCKER_API_VERSION

    @property
    def is_podman(self) -> bool:
        """True if Podman's service answers in place of a Docker daemon."""
        return is_podman(self.info)

    @property
    def rootless(self) -> bool:
        """True if Podman's service runs as a plain user."""
        return self.is_podman and bool(self.info.get("Rootless"))

    @property
    def product(self) -> str:
        """Name of the program that answers: ``Docker``, ``Podman`` or ``rootless Podman``."""
        if not self.is_podman:
            return "Docker"
        return "rootless Podman" if self.rootless else "Podman"

    @property
    def cgroup_version(self) -> str:
        """Version of the control groups: ``1`` or ``2``."""
        return str(self.info.get("CgroupVersion") or "1")

    @property
    def why_unusable(self) -> str:
        """Reason why cells cannot run on this daemon; empty if they can."""
        system = self.info.get("OSType", "linux")
        if system != "linux":
            return f"the daemon runs {system} containers; switch it to Linux containers"
        if self.rootless and self.cgroup_version == "1":
            # It says of itself that it can limit memory, and drops all limits.
            return (
                "rootless Podman can neither limit nor pause containers with control groups of version 1; "
                "boot with version 2, use the service of root, or the process sandbox"
            )
        return ""

    @property
    def seccomp(self) -> str:
        """Filter of system calls: ``default`` or ``none``."""
        rules = [option for option in self.security if option.startswith("name=seccomp")]
        return "default" if rules and "profile=unconfined" not in rules[0] else "none"

    @property
    def security(self) -> tuple[str, ...]:
        """The daemon's ``SecurityOptions``, such as ``name=seccomp,profile=default``."""
        return tuple(self.info.get("SecurityOptions") or ())

    def can(self, ability: str) -> bool:
        """Return whether the daemon says that it can set a limit; one that says nothing of it can."""
        return bool(self.info.get(ability, True))

    @property
    def image_store(self) -> str:
        """Kind of image store, which decides what an image's id is.

        ``containerd``: the digest of its manifest. ``graphdriver``: the digest of its configuration.
        """
        rows = self.info.get("DriverStatus") or ()
        return "containerd" if any("containerd.snapshotter" in str(row) for row in rows) else "graphdriver"


def create_request(
    spec: RoleSpec, daemon: DaemonInfo, *, unlimited_memlock: bool, cores: Collection[int] = ()
) -> dict[str, Any]:
    """Make the body of ``POST /containers/create``.

    Args:
        spec: the role to start.
        daemon: the daemon that will get the request.
        unlimited_memlock: lift the limit on locked memory for roles with a GPU, which need pinned host memory; some
            daemons are not allowed to do so.
        cores: the cores that a role that gives way may use; empty for all.

    Raises:
        ImageError: if ``spec`` names no image.
        SandboxError: if this daemon cannot give the GPU to a container.
    """
    if spec.image is None:
        raise ImageError(f"{spec.name} names no image", next_step="give its toolchain an image in matrix.toml")
    labels = spec.labels
    body = ContainerConfig(
        daemon.api_version,
        image=spec.image,
        command=[],
        entrypoint=["python3", *command(spec)],  # in place of the image's own entry point and command
        user=f"{spec.uid}:{spec.uid}",
        working_dir=PACKAGE_TARGET,
        environment={**_gpu_environment(spec, daemon), **environment(spec)},
        labels={
            f"{LABEL}.run": labels.run_id,
            f"{LABEL}.cell": labels.cell_id,
            f"{LABEL}.session": str(labels.session),
            f"{LABEL}.gpu": labels.gpu_uuid,
            OWNER_LABEL: labels.owner,
            f"{LABEL}.role": spec.role.value,
        },
        healthcheck=Healthcheck(test=["NONE"]),  # an image's health check would disturb the measurement
        network_disabled=True,
        host_config=_host_config(spec, daemon, unlimited_memlock=unlimited_memlock, cores=cores),
    )
    return dict(body)


_ROLES_OF_A_USER = 64
"""More than run at once: the limit ``nproc`` counts the processes of all containers of a user."""
_LOW_CPU_SHARES = 2
"""The lowest weight among containers that Docker accepts; its default is 1024."""


_PODMAN_TMPFS = dict.fromkeys(("/run", "/var/tmp"), "ro,nosuid,nodev,noexec,size=4k,mode=755")  # noqa: S108
"""In place of folders that every user may write, without a limit of their size, beside a read-only file system."""


def _host_config(spec: RoleSpec, daemon: DaemonInfo, *, unlimited_memlock: bool, cores: Collection[int]) -> HostConfig:
    limits = spec.limits
    # A plain user's control groups usually cannot limit cores, even if the daemon says that it can.
    has_cores = spec.gives_way and cores and daemon.can("CPUSet") and not daemon.rootless
    return HostConfig(
        daemon.api_version,
        network_mode="none",
        read_only=True,
        cap_drop=["ALL"],
        security_opt=["no-new-privileges:true"],
        pids_limit=limits.pids,
        cpu_shares=_LOW_CPU_SHARES if spec.gives_way else None,
        cpuset_cpus=",".join(map(str, sorted(cores))) if has_cores else None,
        mem_limit=limits.memory_bytes,
        memswap_limit=limits.memory_bytes,
        shm_size=limits.shm_bytes,
        # "exec" because compiled kernels are loaded from caches in this folder.
        tmpfs={
            **(_PODMAN_TMPFS if daemon.is_podman else {}),
            SCRATCH: f"rw,nosuid,nodev,exec,size={limits.tmpfs_bytes},mode=1777",
        },
        ipc_mode="private",
        ulimits=[] if daemon.rootless else list(_ulimits(spec, daemon, unlimited_memlock=unlimited_memlock)),
        log_config=LogConfig(type=LogConfig.types.JSON, config={"max-size": "1m", "max-file": "1"}),
        mounts=list(_mounts(spec, daemon)),
        **_gpu_settings(spec, daemon),
    )


def limits_set_inside(spec: RoleSpec, daemon: DaemonInfo) -> str:
    """Return the limits that the first process of a container sets, as ``nofile=1024,core=0``; empty for none.

    Rootless Podman drops those that a request has.
    """
    limits = _ulimits(spec, daemon, unlimited_memlock=False) if daemon.rootless else ()
    return ",".join(f"{limit.name}={limit.hard}" for limit in limits)


def _ulimits(spec: RoleSpec, daemon: DaemonInfo, *, unlimited_memlock: bool) -> Iterator[Ulimit]:
    if daemon.is_podman:  # its own default may be more than its service may set; processes are limited per container
        most = _ROLES_OF_A_USER * spec.limits.pids
        yield Ulimit(name="nproc", soft=most, hard=most)
    yield Ulimit(name="core", soft=0, hard=0)
    yield Ulimit(name="nofile", soft=spec.limits.open_files, hard=spec.limits.open_files)
    yield Ulimit(name="fsize", soft=spec.limits.file_bytes, hard=spec.limits.file_bytes)
    if unlimited_memlock and _accelerator(spec):
        yield Ulimit(name="memlock", soft=-1, hard=-1)


def _mounts(spec: RoleSpec, daemon: DaemonInfo) -> Iterator[Mount]:
    for source, target in package_mounts(spec):
        yield _bind(source, target)
    for mount in spec.mounts:
        yield _bind(str(mount.source.resolve()), mount.target, writable=mount.writable)
    for source, target in gpu_access(spec, daemon).libraries:
        yield _bind(source, target)


def _bind(source: str, target: str, *, writable: bool = False) -> Mount:
    return Mount(type="bind", source=source, target=target, read_only=not writable)


def _accelerator(spec: RoleSpec) -> Gpu | None:
    if spec.gpu is None or not get_platform(spec.gpu.platform).IS_ACCELERATOR:
        return None
    return spec.gpu


def gpu_access(spec: RoleSpec, daemon: DaemonInfo) -> DeviceAccess:
    """Return what gives the container of ``spec`` its GPU; empty for a role without one.

    Raises:
        SandboxError: if the role has a GPU and the daemon has no way to give it to a container.
    """
    gpu = _accelerator(spec)
    if gpu is None:
        return DeviceAccess()
    access = container_access(daemon.info, gpu)
    if access.way == NO_ACCESS:
        what = f"the daemon cannot give {gpu.uuid} to a container"
        raise SandboxError(what, next_step=get_platform(gpu.platform).ACCESS_ADVICE)
    return access


def _gpu_settings(spec: RoleSpec, daemon: DaemonInfo) -> dict[str, Any]:
    """Return the part of the host settings that gives the container its GPU."""
    access = gpu_access(spec, daemon)
    requests = {"device_requests": [DeviceRequest(**request) for request in access.requests]}
    nodes = {"devices": [f"{node}:{node}:rw" for node in access.nodes]}
    groups = {"group_add": [str(group) for group in access.groups]}
    asked = ((requests, access.requests), (nodes, access.nodes), (groups, access.groups))
    return {name: value for part, wanted in asked if wanted for name, value in part.items()}


def _gpu_environment(spec: RoleSpec, daemon: DaemonInfo) -> dict[str, str]:
    hidden = {name: text for platform in platforms().values() for name, text in platform.HIDDEN.items()}
    return {**hidden, **gpu_access(spec, daemon).environment}


def dropped_limits(request: Mapping[str, Any], found: Mapping[str, Any], daemon: DaemonInfo) -> tuple[str, ...]:
    """Return the limits that ``daemon`` says it can set, and has not set in the container that it made of a request.

    Args:
        request: what :func:`create_request` made.
        found: the container's settings, as ``inspect`` shows them.
        daemon: the daemon.
    """
    asked, made = request["HostConfig"], found["HostConfig"]
    dropped = [name for name, (key, ability) in _COUNTED.items() if daemon.can(ability) and asked[key] != made[key]]
    limits = {limit["Name"].lower().removeprefix("rlimit_"): limit["Hard"] for limit in made["Ulimits"] or ()}
    return (*dropped, *(one["Name"] for one in asked["Ulimits"] if limits.get(one["Name"]) != one["Hard"]))


_COUNTED = {"memory_bytes": ("Memory", "MemoryLimit"), "pids": ("PidsLimit", "PidsLimit")}
"""Limit of all processes together → its key in a request, and the daemon's ability to set it."""


def isolation_of(spec: RoleSpec, daemon: DaemonInfo) -> Isolation:
    """Return the confinement of a container that ``daemon`` makes of :func:`create_request`."""
    enforced = tuple(name for name, (_, ability) in _COUNTED.items() if daemon.can(ability))
    return Isolation(
        engine="docker",
        user="shared" if spec.uid == os.getuid() else "own",
        network="none",
        filesystem="read-only",
        processes="private",
        capabilities="none",
        seccomp=daemon.seccomp,
        memory_limit="group" if "memory_bytes" in enforced else "",
        limits=(*enforced, "tmpfs_bytes", "shm_bytes", "file_bytes", "open_files"),
        notes=tuple(_notes(spec, daemon)),
    )


def _notes(spec: RoleSpec, daemon: DaemonInfo) -> Iterator[str]:
    """Yield one sentence for each thing that is weaker than designed."""
    if daemon.seccomp == "none":
        yield "the daemon applies no system call filter"
    for ability, what in (("MemoryLimit", "memory"), ("PidsLimit", "the number of processes")):
        if not daemon.can(ability):
            yield f"the daemon cannot limit {what}"
    if not daemon.can("SwapLimit"):
        yield "the daemon cannot limit swap, so the memory limit holds for resident memory only"
    writable = sorted(mount.target for mount in spec.mounts if mount.writable)
    if writable:
        yield f"also writable, shared with the host: {', '.join(writable)}"
