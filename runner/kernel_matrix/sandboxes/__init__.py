"""How a process of a cell is placed and started: the nouns, the ``Sandbox`` protocol and the registry.

A sandbox starts one process of one :class:`~kernel_matrix.model.enums.Role` at a time, confined as its
:class:`RoleSpec` says, and always takes it away again. To add one: one file here and one line in :data:`SANDBOXES`, or
an entry point of another package in the group ``kernel_matrix.sandboxes``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from kernel_matrix.model.enums import Role
from kernel_matrix.platforms import Gpu
from kernel_matrix.plugins import Registry, protocol_members


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceLimits:
    """What a process of a cell may use at most."""

    memory_bytes: int = 16 << 30
    pids: int = 512
    tmpfs_bytes: int = 2 << 30
    """Size of ``/tmp``, the one place a candidate can write."""
    shm_bytes: int = 64 << 20
    file_bytes: int = 1 << 30
    """Largest single file."""
    open_files: int = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """A folder of the host shown inside, read-only unless ``writable``."""

    source: Path
    target: str
    writable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessLabels:
    """Whose a container is; enough to reap it when its owner is dead."""

    run_id: str
    cell_id: str
    session: int
    gpu_uuid: str
    owner: str
    """``<pid>:<start time in clock ticks>:<boot id>`` of the runner."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleSpec:
    """One process to start. Paths in ``args`` and ``env`` are given as seen inside (mount targets)."""

    role: Role
    labels: ProcessLabels
    image: str | None
    """Exact image to run, by digest or id; ``None`` for sandboxes without images."""
    module: str
    """Python module to run, ``kernel_matrix.inside.judge.judge``; found below :data:`PACKAGE_TARGET`."""
    platform: str = "cpu"
    """Registry key of the platform whose inside half it may import, whether or not it sees a device."""
    args: tuple[str, ...] = ()
    mounts: tuple[Mount, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    gpu: Gpu | None = None
    """The one device it sees; null for none (CPU, builder)."""
    limits: ResourceLimits = ResourceLimits()
    uid: int = 65534
    """User inside. Judge and candidate never share one where the sandbox can set it."""
    contestant: str = ""
    """Name of the contestant it runs; several of a session may have the same role."""

    @property
    def title(self) -> str:
        """What tells it from the other processes of its session."""
        return self.contestant or self.role.value

    @property
    def name(self) -> str:
        """Container name, fixed before anything is created."""
        labels = self.labels
        # A session may be started on two devices at once, when it is not known yet which will be free first.
        device = labels.gpu_uuid[-6:]
        return "-".join(
            filter(None, ("km", labels.run_id, labels.cell_id[:16], device, str(labels.session), self.title))
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessExit:
    """How a process ended."""

    role: Role
    code: int | None
    """Exit code; null when it was killed by a signal or vanished."""
    signal: int | None = None
    oom_killed: bool = False
    lost: bool = False
    """The sandbox lost sight of it (daemon died, container removed by somebody else)."""
    killed: bool = False
    """This runner killed it (deadline, or the session was over)."""
    log_tail: str = ""
    """Last 16 KiB of stdout and stderr together, undecodable bytes replaced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Isolation:
    """How confined a role really is on this sandbox and host; goes into the record."""

    engine: str
    """Name of the sandbox, under the record's field name."""
    user: str
    """``own``: another uid than judge and runner; ``shared``: the same one."""
    network: str
    """``none``: no interface but loopback; ``host``: the host's network is reachable."""
    filesystem: str
    """``read-only``: nothing but a private tmpfs is writable; ``shared``: the host's files, with the user's rights."""
    processes: str
    """``private``: own PID namespace; ``shared``."""
    capabilities: str
    """``none`` or ``some``."""
    seccomp: str
    """``default`` or ``none``."""
    limits: tuple[str, ...] = ()
    """Which of :class:`ResourceLimits`' fields are enforced."""
    notes: tuple[str, ...] = ()
    """What is weaker than designed, and why, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxStatus:
    """Whether a sandbox can be used here."""

    name: str
    available: bool
    reason: str = ""
    """Why not, and what to do, in words."""
    version: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)
    """E.g. storage driver, cgroup version, how GPUs reach containers."""


class RunningProcess(Protocol):
    """A started process."""

    def wait(self, timeout_s: float) -> ProcessExit | None:
        """Its end, or null when it still runs after ``timeout_s``. Safe to call again after the end."""
        ...

    def kill(self) -> None:
        """End it and everything it started, now. Safe to call at any time, from any thread."""
        ...

    def root_pid(self) -> int | None:
        """Host PID of the first process of its tree; null when it is not known, or gone."""
        ...


class Sandbox(Protocol):
    """Starts roles."""

    name: str
    uses_images: bool

    def status(self) -> SandboxStatus:
        """Whether it can be used here; never raises."""
        ...

    def isolation(self, spec: RoleSpec) -> Isolation:
        """How confined ``spec`` will be here."""
        ...

    def describe(self, spec: RoleSpec) -> dict[str, Any]:
        """Exactly what would be asked of the system for ``spec`` (``--dry-run``)."""
        ...

    def launch(self, spec: RoleSpec) -> AbstractContextManager[RunningProcess]:
        """Start ``spec``; on leaving the context it is gone, whatever happened.

        :raises kernel_matrix.errors.SandboxError: when it could not be started.
        """
        ...

    def leftovers(self) -> Sequence[str]:
        """What dead runners left, one line per thing; removes nothing."""
        ...

    def sweep(self) -> Sequence[str]:
        """Remove what dead runners left; returns one line per thing removed."""
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
    {"docker": "kernel_matrix.sandboxes.docker", "process": "kernel_matrix.sandboxes.process"},
    members=protocol_members(SandboxModule),
)
"""Name → module; the order is the order of preference."""


def open_sandbox(name: str) -> Sandbox:
    """Import the sandbox registered as ``name`` and open it.

    Raises:
        PluginError: There is none, it cannot be imported, or it lacks a member of the protocol.
    """
    return SANDBOXES.load(name).open_sandbox()
