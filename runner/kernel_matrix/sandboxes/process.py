"""Sandbox without images: each role is a process of this machine's own Python, confined as far as the kernel allows.

The strongest confinement that works here is found once, by running a harmless module under each in turn:

=============  ====================================================================================================
namespaces     private PID, mount, network and IPC namespaces; only a small read-only tree is visible. Made either by
               root (then under another uid, too) or inside a user namespace (then under the runner's own uid)
another uid    root that is not allowed to make namespaces can still switch to another user
limits only    a session of its own, and resource limits
=============  ====================================================================================================

Every role gets the same confinement, the judge too: it runs the code of problems, which others may have written. At
each level, system calls are filtered where the kernel can do so, and the memory of all processes of a role together is
limited: by a control group where this runner can make one, else by looking at the processes at intervals. Without
namespaces, Landlock shows a role the same files that a private tree would have, where the kernel has it, and the filter
refuses sockets to other machines.
"""

from __future__ import annotations

import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any

from kernel_matrix.errors import SandboxError
from kernel_matrix.hosts.process_token import orphaned_folders, own_folder, owner_token
from kernel_matrix.inside import confine
from kernel_matrix.inside.environment_description import python_folders
from kernel_matrix.model.enums import Role
from kernel_matrix.platforms import DeviceAccess
from kernel_matrix.platforms.registry import platforms, process_access
from kernel_matrix.sandboxes import PACKAGE_TARGET, Isolation, ProcessLabels, RoleSpec, RunningProcess, SandboxStatus
from kernel_matrix.sandboxes.memory_groups import MemoryGroup, MemoryGroups, find_memory_groups
from kernel_matrix.sandboxes.memory_watch import MemoryWatch
from kernel_matrix.sandboxes.role_environment import (
    PACKAGE,
    SCRATCH,
    command,
    environment,
    package_mounts,
    package_parts,
)
from kernel_matrix.sandboxes.supervised_process import START_TIMEOUT_S, SupervisedProcess, launcher
from kernel_matrix.sandboxes.system_call_filter import REFUSED, make_connection_filter, make_filter

_STAGE_PREFIX = "kernel-matrix-process-"

_SYSTEM = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/sys/devices/system"),
    *("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives"),
    *("/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/localtime"),
)
"""Paths of the host that programs need: binaries, libraries, and the files that name users and time zones."""

_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class Confinement:
    """A level of confinement."""

    namespaces: str
    """Kind of namespaces, a constant of :mod:`kernel_matrix.inside.confine`."""
    other_user: bool
    """The role runs under a uid that is not the runner's."""
    refused: tuple[str, ...] = ()
    """Stronger levels that do not work here, each with the reason."""
    unfiltered: str = ""
    """Reason why system calls are not filtered; empty if they are."""
    groups: MemoryGroups | None = None
    """Place for control groups that limit memory and tasks; ``None`` if there is none."""
    ungrouped: str = ""
    """Reason why there is none."""
    unrestricted: str = ""
    """Reason why files are not restricted by Landlock, which takes the place of a private tree; empty if they are."""

    @property
    def is_private(self) -> bool:
        """The role has namespaces of its own."""
        return self.namespaces != confine.NONE

    @property
    def uses_landlock(self) -> bool:
        """Landlock restricts the role's files."""
        return not (self.is_private or self.unrestricted)

    @property
    def reaches_files_of_runner(self) -> bool:
        """The role can write to everything that the runner can write to, its control groups included."""
        return not (self.is_private or self.other_user or self.uses_landlock)

    @property
    def limits_tasks_by_group(self) -> bool:
        """A control group limits the number of the role's tasks; without one, they are counted per user."""
        return self.groups is not None and self.groups.limit_tasks and not self.reaches_files_of_runner

    @property
    def reaches_network(self) -> bool:
        """The role can open sockets to other machines."""
        return not self.is_private and bool(self.unfiltered)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleTree:
    """The Python that a role runs, and the private tree around it."""

    python: str
    """Path of the interpreter inside, or its name in ``PATH``."""
    env: Mapping[str, str]
    """Variables that belong to it; those of the role are added."""
    binds: Iterable[confine.BindMount]
    """Mounts of the tree, parents first, without the role's own. They are made when they are read, which is once."""


_LIMITS_ONLY = Confinement(confine.NONE, other_user=False)

_EMPTY = "empty"
"""Name of the empty folder that is mounted over folders which a role must not read."""

_PACKAGES = ("", "lib*/python3*/*-packages/", "local/lib*/python3*/*-packages/")
"""Where packages are, below a folder of packages or a prefix of Python or of the system."""


def open_sandbox() -> ProcessSandbox:
    """Return the process sandbox of this machine."""
    return ProcessSandbox()


class ProcessSandbox:
    """Sandbox that starts roles as local processes.

    Enter and leave :meth:`launch` in the same thread, because a role ends with the thread that started it.
    """

    name = "process"
    uses_images = False

    def status(self) -> SandboxStatus:
        """Return whether this machine runs Linux, and how far it confines processes."""
        version = platform.python_version()
        if not sys.platform.startswith("linux"):
            return SandboxStatus(name=self.name, available=False, reason="needs Linux", version=version)
        level = self.confinement
        details = {
            "namespaces": level.namespaces,
            "other_user": level.other_user,
            "refused": list(level.refused),
            "unfiltered": level.unfiltered,
            "ungrouped": level.ungrouped,
            "landlock": level.uses_landlock,
        }
        network = level.is_private
        return SandboxStatus(name=self.name, available=True, version=version, own_network=network, details=details)

    @cached_property
    def confinement(self) -> Confinement:
        """Strongest confinement that works here."""
        refused: list[str] = []
        for level in _candidate_levels():
            found = self._strongest(level)
            if isinstance(found, Confinement):
                return replace(found, refused=tuple(refused))
            refused.append(f"{_describe(level)}: {found}")
        why = refused[-1]
        return replace(_LIMITS_ONLY, refused=tuple(refused), unfiltered=why, ungrouped=why, unrestricted=why)

    def isolation(self, spec: RoleSpec) -> Isolation:  # noqa: ARG002  # part of the protocol
        """Return the confinement that ``spec`` gets on this host."""
        level = self.confinement
        return Isolation(
            engine=self.name,
            user="own" if level.other_user else "shared",
            network="host" if level.reaches_network else "none",
            filesystem="read-only" if level.is_private or level.uses_landlock else "shared",
            processes="private" if level.is_private else "shared",
            capabilities="none" if level.other_user or os.geteuid() != 0 else "some",
            seccomp="none" if level.unfiltered else "own",
            memory_limit="group" if level.groups else "watch",
            limits=_enforced_limits(level),
            notes=tuple(_notes(level)),
        )

    def describe(self, spec: RoleSpec) -> dict[str, Any]:
        """Return the launcher's command line and its request; ``<drawn>`` stands for a name drawn at the start."""
        level = self.confinement
        stage = Path(tempfile.gettempdir()) / f"{_STAGE_PREFIX}<drawn>"
        request = _make_request(spec, self._tree(spec, stage), level, stage)
        described = {**request._asdict(), "binds": [bind._asdict() for bind in request.binds]}
        described["system_call_filter"] = "" if level.unfiltered else f"refuses {', '.join(REFUSED)}"
        described["memory_group"] = str(level.groups.parent) if level.groups else ""
        described.update(empty_files=list(request.empty_files), groups=list(request.groups))
        return {"sandbox": self.name, "argv": list(launcher()), "orders": described}

    @contextmanager
    def launch(self, spec: RoleSpec) -> Iterator[RunningProcess]:
        """Start ``spec``; kill its process and remove its private folder when the context ends.

        Raises:
            SandboxError: if it could not be started.
        """
        with self._launch(spec, self.confinement, self._tree) as running:
            yield running

    def leftovers(self) -> Sequence[str]:
        """Return one line for each private folder of a dead runner; their processes ended with the runner."""
        return [_describe_orphan(folder) for folder in (*orphaned_folders(_STAGE_PREFIX), *_orphaned_groups())]

    def sweep(self) -> Sequence[str]:
        """Remove the private folders and control groups of dead runners, and return one line for each."""
        orphans, groups = orphaned_folders(_STAGE_PREFIX), _orphaned_groups()
        for folder in orphans:
            shutil.rmtree(folder, ignore_errors=True)
        for group in groups:
            with suppress(OSError):  # its last process is about to end
                group.rmdir()
        return [_describe_orphan(folder) for folder in (*orphans, *groups)]

    @contextmanager
    def _launch(
        self, spec: RoleSpec, level: Confinement, tree: Callable[[RoleSpec, Path], RoleTree]
    ) -> Iterator[SupervisedProcess]:
        with ExitStack() as stack:
            stage = stack.enter_context(_stage(spec, level))
            group = stack.enter_context(_memory_group(spec, level))
            running = SupervisedProcess(
                spec.role,
                group or _memory_watch(spec, level),
                may_leave_group=level.reaches_files_of_runner,
                gives_way=spec.gives_way,
            )
            stack.callback(running.close)
            running.start(_make_request(spec, tree(spec, stage), level, stage))
            yield running

    def _tree(self, spec: RoleSpec, stage: Path) -> RoleTree:
        """Return the Python that the role runs, and the private tree around it."""
        return _host_tree(spec, stage)

    def _strongest(self, level: Confinement) -> Confinement | str:
        """Return ``level`` with all parts that work here, or why it does not work without them either."""
        error = self._try(level)
        if error is None:
            return level
        for weaker in _weaker_forms(level, error):
            if self._try(weaker) is None:
                return weaker
        return error

    def _try(self, level: Confinement) -> str | None:
        """Run a module that does nothing under ``level``; return why that failed, or ``None`` if it worked."""
        labels = ProcessLabels(run_id="probe", cell_id="probe", session=0, gpu_uuid="cpu", owner=owner_token())
        spec = RoleSpec(role=Role.CANDIDATE, labels=labels, image=None, module="kernel_matrix.model.enums")
        try:
            with self._launch(spec, level, _host_tree) as running:
                end = running.wait(START_TIMEOUT_S)
        except SandboxError as error:
            return error.what
        if end is None or end.code != 0:
            return (end.log_tail if end else "").strip().rpartition("\n")[2] or "Python did not start"
        return None


def _candidate_levels() -> Sequence[Confinement]:
    """Return the levels that may work for this user, strongest first."""
    unfiltered = "" if make_filter() else f"the system calls of {os.uname().machine} are not listed"
    root = (Confinement(confine.ROOT, other_user=True), Confinement(confine.NONE, other_user=True))
    levels = root if os.geteuid() == 0 else (Confinement(confine.USER, other_user=False),)
    groups = find_memory_groups()
    parts: dict[str, Any] = {"ungrouped": groups} if isinstance(groups, str) else {"groups": groups}
    parts["unrestricted"] = "" if confine.landlock_version() else "this kernel has no Landlock"
    return [replace(level, unfiltered=unfiltered, **parts) for level in (*levels, _LIMITS_ONLY)]


def _weaker_forms(level: Confinement, error: str) -> Iterator[Confinement]:
    """Yield ``level`` without parts that a kernel may refuse, those that lack the fewest first."""
    parts: list[dict[str, Any]] = []
    if level.groups:
        parts.append({"groups": None, "ungrouped": error})
    if level.uses_landlock:
        parts.append({"unrestricted": error})
    if not level.unfiltered:
        parts.append({"unfiltered": error})
    for count in range(1, len(parts) + 1):
        for left_out in combinations(parts, count):
            yield replace(level, **{name: value for part in left_out for name, value in part.items()})


def _describe(level: Confinement) -> str:
    words = {confine.ROOT: "namespaces", confine.USER: "a user namespace"}
    what = words.get(level.namespaces, "another uid" if level.other_user else "limits")
    return f"{what} could not be had"


def _enforced_limits(level: Confinement) -> tuple[str, ...]:
    """Return the names of the fields of :class:`kernel_matrix.sandboxes.ResourceLimits` that are enforced."""
    always = ("memory_bytes", "file_bytes", "open_files", "pids")
    sizes = ("tmpfs_bytes", "shm_bytes") if level.is_private else ()
    return (*always, *sizes)


def _notes(level: Confinement) -> Iterator[str]:
    """Yield one sentence for each thing that is weaker than designed."""
    yield from level.refused
    if level.unfiltered:
        yield f"system calls are not filtered: {level.unfiltered}"
    if not level.groups:
        yield f"the memory of all processes together is summed at intervals, without a control group: {level.ungrouped}"
    if not level.limits_tasks_by_group and (
        level.namespaces != confine.USER or not confine.counts_tasks_per_namespace()
    ):
        yield "processes are counted per user: others of the same user count too"
    if not level.is_private:
        if level.reaches_network:
            yield "the network is within reach"
        if level.unrestricted:
            yield f"the host's files are within reach, with the user's rights: {level.unrestricted}"
        yield "other processes are visible"
        yield "the scratch folder is a folder of the host, without a limit on its size"
        if os.statvfs(tempfile.gettempdir()).f_flag & os.ST_NOEXEC:
            yield "libraries that a candidate compiles cannot be loaded (noexec): set TMPDIR to another file system"
    if not level.other_user:
        yield "runs under the runner's own uid"


def _make_request(spec: RoleSpec, tree: RoleTree, level: Confinement, stage: Path) -> confine.ConfineRequest:
    """Make the launcher's request, without the files that are open when it is sent."""
    private = level.is_private
    argv = (tree.python, *command(spec))
    env = {**tree.env, **_gpu_environment(spec), **environment(spec), **_refused_connections(spec, level)}
    host_paths = {} if private else _host_paths(spec, stage)
    binds = (*tree.binds, *own_binds(spec)) if private else _reachable(spec, stage)
    limits = spec.limits
    return confine.ConfineRequest(
        argv=[argv[0], *(_to_host_path(text, host_paths) for text in argv[1:])],
        env={name: ":".join(_to_host_path(part, host_paths) for part in text.split(":")) for name, text in env.items()},
        cwd=_to_host_path(PACKAGE_TARGET, host_paths),
        report_fd=-1,
        parent=os.getpid(),
        namespaces=level.namespaces,
        limits={"CORE": 0, "NOFILE": limits.open_files, "FSIZE": limits.file_bytes, "DATA": limits.memory_bytes},
        pids=None if level.limits_tasks_by_group else limits.pids,
        uid=spec.uid if level.other_user or level.namespaces == confine.USER else None,
        groups=_gpu_access(spec).groups,
        root=str(stage / "root") if private else "",
        binds=tuple(binds),
        landlock=level.uses_landlock,
        empty_files=(f"{PACKAGE_TARGET}/{PACKAGE}/__init__.py",) if private else (),
        tmpfs_bytes=limits.tmpfs_bytes,
        shm_bytes=limits.shm_bytes,
        first_out_of_memory=spec.role is not Role.JUDGE,
        loopback=spec.has_ranks and private,
        system_call_filter=_filter_for(spec, level).hex(),
    )


def _refused_connections(spec: RoleSpec, level: Confinement) -> dict[str, str]:
    """Return the variable that lets a role refuse further connections once it has its own.

    A judge connects again in each of its sessions. In a private tree there is no other socket.
    """
    if level.is_private or level.unfiltered or spec.role is Role.JUDGE:
        return {}
    return {confine.REFUSE_CONNECTIONS: make_connection_filter().hex()}


def _filter_for(spec: RoleSpec, level: Confinement) -> bytes:
    if level.unfiltered:
        return b""
    return make_filter(memory_files=_may_make_memory_files(spec, level), is_private=level.is_private)


def _may_make_memory_files(spec: RoleSpec, level: Confinement) -> bool:
    """Return whether a role may make files that exist in memory only.

    Where memory is summed at intervals, a process can hide such a file. Drivers may need some.
    """
    return level.groups is not None or bool(level.unfiltered) or spec.lends_memory or spec.gpu is not None


@contextmanager
def _memory_group(spec: RoleSpec, level: Confinement) -> Iterator[MemoryGroup | None]:
    """Make the control group that limits a role, ``None`` if there are none; remove it at the end.

    Raises:
        SandboxError: If it cannot be made.
    """
    with ExitStack() as stack:
        try:
            group = stack.enter_context(_new_group(level.groups, spec, level)) if level.groups else None
        except OSError as error:
            raise SandboxError(f"cannot make a control group for the {spec.role.value}: {error}") from error
        yield group


def _new_group(groups: MemoryGroups, spec: RoleSpec, level: Confinement) -> AbstractContextManager[MemoryGroup]:
    outer_tasks = 2 if level.is_private else 1  # the launcher, and process 1 of the role's namespace
    return groups.new_group(spec.limits.memory_bytes, spec.limits.pids, outer_tasks)


def _memory_watch(spec: RoleSpec, level: Confinement) -> MemoryWatch | None:
    """Return what sums the memory of a role's processes; ``None`` if a control group limits it."""
    if level.groups:
        return None
    uid = spec.uid if level.other_user else os.getuid()
    return MemoryWatch(
        limit_bytes=spec.limits.memory_bytes,
        file_systems=(SCRATCH, "/dev/shm") if level.is_private else (),  # noqa: S108  # as seen inside
        memory_files_of=uid if _may_make_memory_files(spec, level) else None,
    )


def _orphaned_groups() -> Sequence[Path]:
    groups = find_memory_groups()
    return () if isinstance(groups, str) else groups.orphans()


def _path(spec: RoleSpec) -> str:
    prefix = spec.environment.prefix if spec.environment else sys.prefix
    folders = [folder for platform in platforms().values() for folder in platform.PROGRAM_FOLDERS]
    return ":".join((f"{prefix}/bin", *folders, SYSTEM_PATH))


def _gpu_environment(spec: RoleSpec) -> dict[str, str]:
    hidden = {name: text for platform in platforms().values() for name, text in platform.HIDDEN_IN_PROCESS.items()}
    return {**hidden, **_gpu_access(spec).environment}


def _gpu_access(spec: RoleSpec) -> DeviceAccess:
    return DeviceAccess() if spec.gpu is None else process_access(spec.gpu)


def _host_paths(spec: RoleSpec, stage: Path) -> dict[str, str]:
    """Return path inside → path on the host, for a role that sees the host's files."""
    mounts = {mount.target: str(mount.source.resolve()) for mount in spec.mounts}
    return {PACKAGE_TARGET: str(stage / "package"), SCRATCH: str(stage / "scratch"), **mounts}


def _to_host_path(text: str, host_paths: Mapping[str, str]) -> str:
    """Replace the longest path inside that ``text`` begins with by its path on the host."""
    prefixes = [target for target in host_paths if text == target or text.startswith(f"{target}/")]
    if not prefixes:
        return text
    target = max(prefixes, key=len)
    return host_paths[target] + text[len(target) :]


def _host_tree(spec: RoleSpec, stage: Path) -> RoleTree:
    """Return the system of this host with the role's Python, and the package's inside half."""
    python = spec.environment.executable if spec.environment else sys.executable
    return RoleTree(python=python, env={"PATH": _path(spec)}, binds=_host_binds(spec, stage))


def _host_binds(spec: RoleSpec, stage: Path) -> Iterator[confine.BindMount]:
    shown = _outermost([*map(Path, _SYSTEM), *_toolkit_folders(), *_python_folders(spec)])
    for path in shown:
        yield confine.BindMount(str(path), str(path))
    for path in _installed_copies(shown):
        yield confine.BindMount(str(stage / _EMPTY), str(path))
    for source, target in package_mounts(spec):
        yield confine.BindMount(source, target)


def own_binds(spec: RoleSpec) -> Iterator[confine.BindMount]:
    """Yield the mounts and devices of the role, and what the system says of the device."""
    for mount in sorted(spec.mounts, key=lambda mount: mount.target):
        mode = confine.WRITABLE if mount.writable else confine.READ_ONLY
        yield confine.BindMount(str(mount.source.resolve()), mount.target, mode)
    access = _gpu_access(spec)
    for node in (*filter(os.path.exists, _DEVICES), *access.nodes):
        yield confine.BindMount(node, node, confine.DEVICE)
    for path in access.system_files:
        yield confine.BindMount(path, path)


def _reachable(spec: RoleSpec, stage: Path) -> Iterator[confine.BindMount]:
    """Yield what a role without a private tree may reach: the same, at the paths of the host, and ``/proc``."""
    shown = [*map(Path, _SYSTEM), *_toolkit_folders(), *_python_folders(spec), Path("/proc"), stage / "package"]
    for path in (*map(str, _outermost(shown)), *(source for source, _ in package_mounts(spec))):
        yield confine.BindMount(path, path)
    yield confine.BindMount(str(stage / "scratch"), SCRATCH, confine.WRITABLE)
    yield from own_binds(spec)


def _toolkit_folders() -> list[Path]:
    """Return the folders of the platforms' toolkits on this host, and what they are links to."""
    named = {Path(folder).parent for platform in platforms().values() for folder in platform.PROGRAM_FOLDERS}
    folders = sorted(named - {Path("/")})
    return [*folders, *(folder.resolve() for folder in folders)]


def _python_folders(spec: RoleSpec) -> list[Path]:
    """Return the folders of the role's Python and its packages."""
    return [Path(folder) for folder in (spec.environment.folders if spec.environment else python_folders())]


def _installed_copies(folders: Iterable[Path]) -> list[Path]:
    """Return this package's folders in ``folders``: an installed one holds problems, with their references."""
    found = {
        copy.resolve() for folder in folders for pattern in _PACKAGES for copy in folder.glob(f"{pattern}{PACKAGE}")
    }
    return sorted(path for path in found if path.is_dir())


def _outermost(paths: Sequence[Path]) -> list[Path]:
    """Return the paths that exist and do not lie below another one."""
    existing = {path for path in paths if path.exists()}
    return sorted(path for path in existing if not existing.intersection(path.parents))


@contextmanager
def _stage(spec: RoleSpec, level: Confinement) -> Iterator[Path]:
    """Make a private folder: ``root`` for the tree, ``package`` and ``scratch`` for roles without namespaces."""
    with own_folder(_STAGE_PREFIX) as folder:
        (folder / "root").mkdir()
        (folder / _EMPTY).mkdir()
        if not level.is_private:
            _add_package_and_scratch(folder, spec, spec.uid if level.other_user else None)
        yield folder


def _add_package_and_scratch(folder: Path, spec: RoleSpec, uid: int | None) -> None:
    """Make a scratch folder and a package of the inside half alone, for a role that sees the host's files."""
    package = folder / "package" / PACKAGE
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    for name, source in package_parts(spec).items():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).symlink_to(source)
    scratch = folder / "scratch"
    scratch.mkdir(mode=0o700)
    if uid is not None:
        folder.chmod(0o711)
        os.chown(scratch, uid, uid)


def _describe_orphan(folder: Path) -> str:
    return f"folder {folder} of a runner that is gone"
