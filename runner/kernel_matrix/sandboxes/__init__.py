"""The types of a sandbox, the ``Sandbox`` protocol and the registry.

A sandbox starts a process of one :class:`~kernel_matrix.model.enums.Role`, confines it as its :class:`RoleSpec` says,
and always removes it at the end. To add a sandbox, add one file here and one line in :data:`SANDBOXES`, or an entry
point of another package in the group ``kernel_matrix.sandboxes``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from kernel_matrix.environments import PythonEnvironment
from kernel_matrix.model.enums import Role
from kernel_matrix.model.protocols import protocol_members
from kernel_matrix.platforms import Gpu
from kernel_matrix.plugins import Registry


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceLimits:
    """Upper limits of what a process of a cell may use."""

    memory_bytes: int = 16 << 30
    pids: int = 512
    tmpfs_bytes: int = 2 << 30
    """Size of ``/tmp``, the only folder that a candidate can write."""
    shm_bytes: int = 64 << 20
    file_bytes: int = 1 << 30
    """Largest single file."""
    open_files: int = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """A folder of the host that is visible inside, read-only unless ``writable``."""

    source: Path
    target: str
    writable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessLabels:
    """Labels of a container, from which a later run can tell that its owner is dead and remove it."""

    run_id: str
    cell_id: str
    session: int
    gpu_uuid: str
    owner: str
    """``<pid>:<start time in clock ticks>:<boot id>`` of the runner."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleSpec:
    """One process to start. Paths in ``args`` and ``env`` are paths inside the sandbox (mount targets)."""

    role: Role
    labels: ProcessLabels
    image: str | None
    """Image to run, by digest or id; for sandboxes without images ``None``, or what identifies ``environment``."""
    environment: PythonEnvironment | None = None
    """Python environment to run, for sandboxes without images; ``None`` for the one that this program runs in."""
    module: str
    """Python module to run, such as ``kernel_matrix.inside.judge.judge``; it lies below :data:`PACKAGE_TARGET`."""
    platform: str = "cpu"
    """Registry key of the platform whose inside half the process may import, with or without a device."""
    args: tuple[str, ...] = ()
    mounts: tuple[Mount, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    gpu: Gpu | None = None
    """The only device that the process sees; ``None`` for no device (CPU, builder)."""
    limits: ResourceLimits = ResourceLimits()
    has_ranks: bool = False
    """The process starts others, and all reach each other over the loopback interface."""
    lends_memory: bool = False
    """The process makes files that exist in memory only, and lends them to others."""
    uid: int = 65534
    """User id inside. Judge and candidate have different ones where the sandbox can set it."""
    contestant: str = ""
    """Name of the contestant that the process runs; several contestants of a session may have the same role."""
    gives_way: bool = False
    """The process gives way to timed sessions: it has a low priority."""

    @property
    def title(self) -> str:
        """Name of the process, unique in its session."""
        return self.contestant or self.role.value

    @property
    def name(self) -> str:
        """Container name, fixed before anything is created."""
        labels = self.labels
        # A session may be started on two devices at once, because it is not known yet which one will be free first.
        device = labels.gpu_uuid[-6:]
        return "-".join(
            filter(None, ("km", labels.run_id, labels.cell_id[:16], device, str(labels.session), self.title))
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessExit:
    """The end of a process."""

    role: Role
    code: int | None
    """Exit code; ``None`` if a signal killed the process, or it was lost."""
    signal: int | None = None
    oom_killed: bool = False
    lost: bool = False
    """The sandbox does not know how the process ended (daemon died, container removed from outside)."""
    killed: bool = False
    """This runner killed the process (deadline, or the session was over)."""
    log_tail: str = ""
    """Last 16 KiB of stdout and stderr together, undecodable bytes replaced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Isolation:
    """Confinement of a role that this sandbox really enforces on this host; part of the record."""

    engine: str
    """Name of the sandbox, under the record's field name."""
    user: str
    """``own``: a uid that neither judge nor runner has; ``shared``: the uid of one of them."""
    network: str
    """``none``: no interface but loopback; ``host``: the host's network is reachable."""
    filesystem: str
    """``read-only``: only a private tmpfs is writable; ``shared``: the host's files, with the user's rights."""
    processes: str
    """``private``: own PID namespace; ``shared``."""
    capabilities: str
    """``none`` or ``some``."""
    seccomp: str
    """Filter of system calls: ``default``, the container runtime's; ``own``, this package's; or ``none``."""
    limits: tuple[str, ...] = ()
    """Names of the fields of :class:`ResourceLimits` that are enforced."""
    notes: tuple[str, ...] = ()
    """Sentences, one for each thing that is weaker than designed, with the reason."""
    memory_limit: str = ""
    """Mechanism that limits the sum of the memory of all processes of a role.

    ``group``: a control group of the kernel; ``watch``: this program, which computes the sum at intervals; empty: none.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxStatus:
    """Availability of a sandbox on this host."""

    name: str
    available: bool
    reason: str = ""
    """Reason why it is not available, and what to do."""
    version: str = ""
    own_network: bool = True
    """Each process has a network of its own, with a loopback interface."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """Properties such as the storage driver, the cgroup version or the way in which GPUs reach containers."""


class RunningProcess(Protocol):
    """A started process."""

    def wait(self, timeout_s: float) -> ProcessExit | None:
        """Return how the process ended, or ``None`` if it still runs after ``timeout_s``.

        It may be called again after the end.
        """
        ...

    def kill(self) -> None:
        """Kill the process and everything that it started. It may be called at any time, from any thread."""
        ...

    def pause(self) -> None:
        """Stop all its processes until :meth:`resume`; do nothing if it has ended.

        Raises:
            kernel_matrix.errors.SandboxError: They cannot be stopped.
        """
        ...

    def resume(self) -> None:
        """Let its processes run on; do nothing if it has ended.

        Raises:
            kernel_matrix.errors.SandboxError: They cannot be continued.
        """
        ...

    def root_pid(self) -> int | None:
        """Return the host PID of the first process of its tree; ``None`` if it is unknown or has ended."""
        ...


class Sandbox(Protocol):
    """A way to start and confine the process of a role."""

    name: str
    uses_images: bool

    def status(self) -> SandboxStatus:
        """Return whether the sandbox can be used on this host; it never raises."""
        ...

    def isolation(self, spec: RoleSpec) -> Isolation:
        """Return the confinement that ``spec`` gets on this host."""
        ...

    def describe(self, spec: RoleSpec) -> dict[str, Any]:
        """Return the request that would be made to the system for ``spec`` (``--dry-run``)."""
        ...

    def launch(self, spec: RoleSpec) -> AbstractContextManager[RunningProcess]:
        """Start ``spec``, and remove its process when the context ends, also after an exception.

        Raises:
            kernel_matrix.errors.SandboxError: if it could not be started.
        """
        ...

    def leftovers(self) -> Sequence[str]:
        """Return one line for each thing that a dead runner left; remove nothing."""
        ...

    def sweep(self) -> Sequence[str]:
        """Remove what dead runners left, and return one line for each thing removed."""
        ...


PACKAGE_TARGET = "/opt/kernel-matrix"
"""Folder inside that holds the package; it is the working directory and the only ``PYTHONPATH``."""


class SandboxModule(Protocol):
    """Module of a sandbox."""

    def open_sandbox(self) -> Sandbox:
        """Return the sandbox of this host, usable or not."""
        ...


SANDBOXES: Registry[SandboxModule] = Registry(
    "sandbox",
    "kernel_matrix.sandboxes",
    {name: f"kernel_matrix.sandboxes.{name}" for name in ("docker", "unpacked", "process")},
    members=protocol_members(SandboxModule),
)
"""Name → module; the order is the order of preference."""


def open_sandbox(name: str) -> Sandbox:
    """Import the sandbox registered as ``name`` and open it.

    Raises:
        PluginError: There is none, it cannot be imported, or it lacks a member of the protocol.
    """
    return SANDBOXES.load(name).open_sandbox()
