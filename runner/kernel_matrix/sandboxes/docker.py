"""The Docker sandbox: each role is a container of a pinned image. It confines best, and is preferred."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from docker.api import APIClient
from docker.errors import APIError, DockerException, ImageNotFound, NotFound
from requests.exceptions import RequestException

from kernel_matrix.container_daemon import connect, why_no_answer
from kernel_matrix.errors import ImageError, InfrastructureError, SandboxError
from kernel_matrix.hosts.process_token import orphaned_folders, own_folder, owner_alive
from kernel_matrix.inside import end_with_runner
from kernel_matrix.model.enums import Role
from kernel_matrix.platforms import NO_ACCESS
from kernel_matrix.platforms.registry import platforms
from kernel_matrix.sandboxes import Isolation, Mount, ProcessExit, RoleSpec, RunningProcess, SandboxStatus
from kernel_matrix.sandboxes.docker_request import (
    LABEL,
    OWNER_LABEL,
    DaemonInfo,
    create_request,
    dropped_limits,
    isolation_of,
    limits_set_inside,
)
from kernel_matrix.sandboxes.freezer import Freezer, find_freezer, thaw_container
from kernel_matrix.sandboxes.oom_watch import watch_for_oom
from kernel_matrix.sandboxes.open_socket import listening_for_all
from kernel_matrix.sandboxes.role_environment import LogTail

_log = logging.getLogger(__name__)

_REQUEST_TIMEOUT_S = 120  # creating a container can take a minute on a busy disk
_KILL_TIMEOUT_S = 10.0  # a killed process that frees the memory of a GPU may take seconds to end
_CONNECTIONS = 32  # one per container that is waited for, and some for short requests
_REMOVAL_PAUSES_S = (0.0, 0.5, 2.0)
"""Pause before each attempt to remove a container, and to see it removed: a daemon that restarts needs a moment."""
_CHANGE_PAUSES_S = (0.0, 0.02, 0.2, 2.0)
"""Pause before each attempt to pause or resume a container. The daemon also learns of each change by an event. A late
event sets its state back by one change for a moment, and it refuses the next one.
"""
_LOG_LINES = 1000  # more than fit into a log tail
_CONFLICT = 409  # HTTP status: a container of this name exists
_SIGNAL_BASE = 128  # the daemon reports death by signal n as exit code 128 + n
_LAST_SIGNAL = 64  # signals of Linux are 1 to 64

_RUNNER_FOLDER_PREFIX = "kernel-matrix-runner-"

_FAILURES = (DockerException, RequestException)
"""Errors of a call of the SDK, which does not translate the errors of its HTTP library."""

_EXPLANATIONS = (
    (
        'driver "cdi"',
        "the daemon has CDI switched off",
        "set `features.cdi` to true in /etc/docker/daemon.json and restart the daemon",
    ),
    (
        "bind source path does not exist",
        "the daemon does not find a folder of this machine that it should mount",
        "use a daemon that runs on this machine and sees its files",
    ),
    ("no space left on device", "the daemon's disk is full", "free space: `docker system df` shows what uses it"),
)
"""(text in the daemon's error, meaning, next step)"""


def open_sandbox() -> DockerSandbox:
    """Return the sandbox of the daemon at ``DOCKER_HOST`` or at a usual socket; it connects when first used."""
    return DockerSandbox()


class _MemlockRefusedError(SandboxError):
    """The daemon is not allowed to lift the limit on locked memory."""


class DockerSandbox:
    """Sandbox that starts roles as containers; threads may share it."""

    name = "docker"
    uses_images = True

    def __init__(self, url: str = "") -> None:
        """Make a sandbox of the daemon at ``url``; without one, of that which :func:`connect` finds."""
        self.url = url
        self._unlimited_memlock = True
        self._unremoved: set[str] = set()
        """Containers of this program that could not be removed because the daemon did not answer."""
        self._removing = threading.Lock()

    def status(self) -> SandboxStatus:
        """Return whether a daemon for Linux containers answers."""
        try:
            info = self._client.info()
        except SandboxError as error:
            return SandboxStatus(name=self.name, available=False, reason=str(error))
        except _FAILURES as error:
            return SandboxStatus(name=self.name, available=False, reason=str(_daemon_error(error)))
        version = str(info.get("ServerVersion", ""))
        daemon = DaemonInfo(info, self._client.api_version)
        if reason := daemon.why_unusable:
            return SandboxStatus(name=self.name, available=False, reason=reason, version=version)
        return SandboxStatus(name=self.name, available=True, version=version, details=_details(daemon))

    def isolation(self, spec: RoleSpec) -> Isolation:
        """Return the confinement that the daemon gives ``spec``.

        Raises:
            SandboxError: if no daemon answers.
        """
        return isolation_of(spec, self._daemon)

    def describe(self, spec: RoleSpec) -> dict[str, Any]:
        """Return the name of the container and the exact body of its create request.

        The cores of a role that gives way are not in it: they depend on the thread that starts the container.

        Raises:
            SandboxError: if no daemon answers, or the daemon cannot give the GPU to a container.
        """
        # The real folder is made when the container is, and has a name of its own.
        role = self._ending_with_runner(spec, Path(tempfile.gettempdir(), f"{_RUNNER_FOLDER_PREFIX}…"))
        request = create_request(role, self._daemon, unlimited_memlock=self._unlimited_memlock)
        return {"sandbox": self.name, "name": spec.name, "create": request}

    @contextmanager
    def launch(self, spec: RoleSpec) -> Iterator[RunningProcess]:
        """Start ``spec``, and remove its container when the context ends.

        Raises:
            SandboxError: if it could not be started.
            ImageError: if the daemon does not have the image.
        """
        with ExitStack() as stack:
            try:
                running = stack.enter_context(self._run_container(spec))
            except _MemlockRefusedError:
                self._unlimited_memlock = False
                running = stack.enter_context(self._run_container(spec))
            yield running

    def leftovers(self) -> Sequence[str]:
        """Return one line for each container of a dead runner.

        Raises:
            SandboxError: if the daemon does not answer.
        """
        folders = map(_describe_folder, orphaned_folders(_RUNNER_FOLDER_PREFIX))
        return [*map(_describe_orphan, self._orphans()), *folders]

    def sweep(self) -> Sequence[str]:
        """Remove the containers of dead runners and the folders of their sockets, and return one line for each.

        Raises:
            SandboxError: if the daemon does not answer.
        """
        orphans, folders = self._orphans(), orphaned_folders(_RUNNER_FOLDER_PREFIX)
        for entry in orphans:
            _remove(self._client, entry["Id"])
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)
        return [*map(_describe_orphan, orphans), *map(_describe_folder, folders)]

    def _orphans(self) -> list[dict[str, Any]]:
        try:
            found = self._client.containers(all=True, filters={"label": OWNER_LABEL})
        except _FAILURES as error:
            raise _daemon_error(error) from error
        return [entry for entry in found if not owner_alive(entry["Labels"][OWNER_LABEL])]

    @cached_property
    def _client(self) -> APIClient:
        try:
            return connect(self.url, timeout_s=_REQUEST_TIMEOUT_S, connections=_CONNECTIONS).api
        except DockerException as error:
            raise _daemon_error(error) from error

    @cached_property
    def _daemon(self) -> DaemonInfo:
        try:
            return DaemonInfo(self._client.info(), self._client.api_version)
        except _FAILURES as error:
            raise _daemon_error(error) from error

    @contextmanager
    def _run_container(self, spec: RoleSpec) -> Iterator[_RunningContainer]:
        """Create and start the container of ``spec``; remove it at the end, also if its creation was interrupted."""
        with ExitStack() as stack:
            role = self._ending_with_runner(spec, stack.enter_context(_runner_socket()))
            request = create_request(
                role, self._daemon, unlimited_memlock=self._unlimited_memlock, cores=_limited_cores()
            )
            _check_mounts(request)
            self._retry_removals()
            stack.callback(self._remove_or_remember, spec.name)
            try:
                _create(self._client, spec, request)
            except APIError as error:
                if _names_clash(error):
                    stack.pop_all()  # the container of that name belongs to another runner that is alive
                raise _start_error(error, spec) from error
            except RequestException as error:
                raise _daemon_error(error) from error
            self._check_limits(spec, request)
            running = _RunningContainer(self._client, spec, is_podman=self._daemon.is_podman)
            stack.callback(running.close)
            running.start()
            yield running

    def _ending_with_runner(self, spec: RoleSpec, folder: Path) -> RoleSpec:
        """Return ``spec`` with :mod:`kernel_matrix.inside.end_with_runner` before its module.

        Args:
            spec: the role.
            folder: has the runner's socket.
        """
        return replace(
            spec,
            module=end_with_runner.__name__,
            args=(limits_set_inside(spec, self._daemon), spec.module, *spec.args),
            mounts=(*spec.mounts, Mount(source=folder, target=end_with_runner.RUNNER_FOLDER)),
        )

    def _check_limits(self, spec: RoleSpec, request: Mapping[str, Any]) -> None:
        """Check that Podman has set what it was asked for: where it cannot, it drops limits without a word.

        Raises:
            SandboxError: if it has not.
        """
        if not self._daemon.is_podman:
            return
        try:
            found = self._client.inspect_container(spec.name)
        except _FAILURES as error:
            raise _daemon_error(error) from error
        dropped = dropped_limits(request, found, self._daemon)
        if dropped:
            raise SandboxError(
                f"Podman does not set these limits of {spec.name}: {', '.join(dropped)}",
                next_step="use the service of root, Docker, or the process sandbox",
            )

    def _remove_or_remember(self, name: str) -> None:
        """Remove a container of this program; if that fails, remember its name for a later attempt."""
        if not _remove(self._client, name):
            self._unremoved.add(name)

    def _retry_removals(self) -> None:
        """Remove the containers that could not be removed before.

        They may still run and use memory of a GPU, and a new container may need the same name.
        """
        # The lock keeps another thread from removing a new container that has the name of an old one.
        with self._removing:
            for name in tuple(self._unremoved):
                if not _remove(self._client, name):
                    return
                self._unremoved.discard(name)


@contextmanager
def _runner_socket() -> Iterator[Path]:
    """Listen at a socket that the kernel closes when this program ends in any way; provide the socket's folder.

    Raises:
        SandboxError: if it cannot be made.
    """
    with ExitStack() as stack:
        try:
            folder = stack.enter_context(own_folder(_RUNNER_FOLDER_PREFIX))
            # Its one connection is never accepted, as nothing is said.
            stack.enter_context(listening_for_all(folder / end_with_runner.SOCKET_NAME))
            folder.chmod(0o711)
        except OSError as error:
            raise SandboxError(
                f"no socket could be made for a container: {error}",
                next_step="free space in the folder of temporary files, or set TMPDIR to another one",
            ) from error
        yield folder


def _limited_cores() -> Collection[int]:
    """Return the cores that this thread is limited to, as a process that it starts would be; empty for no limit."""
    cores = os.sched_getaffinity(0)
    return cores if len(cores) < (os.cpu_count() or 1) else ()


def _details(daemon: DaemonInfo) -> dict[str, Any]:
    return {
        "daemon": daemon.product,
        "api_version": daemon.api_version,
        "storage_driver": daemon.info.get("Driver"),
        "image_store": daemon.image_store,
        "cgroup_version": daemon.cgroup_version,
        "seccomp": daemon.seccomp,
        "security": list(daemon.security),
        "gpu_access": _gpu_access(daemon.info),
    }


def _check_mounts(request: Mapping[str, Any]) -> None:
    """Check that what is to be mounted exists: Podman makes an empty folder in place of what does not.

    Raises:
        SandboxError: if something does not exist.
    """
    for mount in request["HostConfig"]["Mounts"]:
        if not Path(mount["Source"]).exists():
            message = f"{mount['Source']}, which is to be mounted, does not exist"
            raise SandboxError(message, next_step="see what removes files there while cells run, and run again")


def _create(client: APIClient, spec: RoleSpec, request: dict[str, Any]) -> None:
    """Create the container; a container of the same name that a dead runner left is removed first."""
    try:
        _request_creation(client, spec.name, request)
    except APIError as error:
        if not _names_clash(error) or not _is_orphan(client, spec.name):
            raise
        _remove(client, spec.name)
        _request_creation(client, spec.name, request)


def _request_creation(client: APIClient, name: str, request: dict[str, Any]) -> None:
    client.create_container_from_config(request, name)  # type: ignore[no-untyped-call]  # untyped in the stubs


def _names_clash(error: APIError) -> bool:
    """Return whether a container of this name exists; Podman says so in words alone."""
    return error.status_code == _CONFLICT or "is already in use" in str(error.explanation)


def _is_orphan(client: APIClient, name: str) -> bool:
    """Return whether the container belongs to a dead runner."""
    owner = client.inspect_container(name)["Config"]["Labels"].get(OWNER_LABEL)
    return owner is not None and not owner_alive(owner)


def _remove(client: APIClient, name: str) -> bool:
    """Kill and remove a container and its anonymous volumes; return False if it is left to a later sweep."""
    failure: Exception | None = None
    for pause_s in _REMOVAL_PAUSES_S:
        time.sleep(pause_s)
        try:
            found = client.inspect_container(name)
            thaw_container(int(found["State"]["Pid"]), found["Id"])  # its runner may have died while it was stopped
            client.remove_container(name, v=True, force=True)
        except NotFound:
            return True
        except _FAILURES as error:
            failure = error
        else:
            return True
    _log.warning("container %s could not be removed (%s); `kernel-matrix sweep` tries again", name, failure)
    return False


def _describe_orphan(entry: dict[str, Any]) -> str:
    """Return one line about the container of a dead runner."""
    labels = entry["Labels"]
    name = (entry.get("Names") or [entry["Id"][:12]])[0].lstrip("/")
    return f"container {name} of run {labels.get(f'{LABEL}.run', '?')}, whose runner is gone"


def _describe_folder(folder: Path) -> str:
    return f"folder {folder} of a container whose runner is gone"


def _gpu_access(info: Mapping[str, Any]) -> str:
    """Return the way in which this daemon gives GPUs to containers; ``none`` if it has no way."""
    ways = (platform.container_access(info).way for platform in platforms().values())
    return next((way for way in ways if way != NO_ACCESS), NO_ACCESS)


def _daemon_error(error: Exception) -> SandboxError:
    if "Permission denied" in str(error):
        return SandboxError(
            f"this user may not talk to the Docker daemon: {why_no_answer(error)}",
            next_step="add the user to the group `docker` and log in again, or use the process sandbox",
        )
    return SandboxError(
        f"no Docker daemon answers: {why_no_answer(error)}",
        next_step=(
            "start it (`systemctl start docker`, or for Podman `podman.socket`), correct DOCKER_HOST, "
            "or use the process sandbox"
        ),
    )


def _start_error(error: APIError, spec: RoleSpec) -> InfrastructureError:
    """Translate the daemon's refusal into an error that says what it means and what to do."""
    text = str(error.explanation or error)
    if isinstance(error, ImageNotFound) or "No such image" in text:
        return ImageError(
            f"the daemon has no image {spec.image}",
            next_step="`kernel-matrix images pull` or `kernel-matrix images build` brings it",
        )
    if "rlimit type 8" in text:  # RLIMIT_MEMLOCK, as runc names it
        return _MemlockRefusedError(text)
    own = spec.gpu.platform if spec.gpu else ""  # vendors explain the same error differently
    in_turn = sorted(platforms().items(), key=lambda item: item[0] != own)
    vendors = (explanation for _, platform in in_turn for explanation in platform.DAEMON_ERRORS)
    for phrase, meaning, next_step in (*_EXPLANATIONS, *vendors):
        if phrase in text:
            return SandboxError(f"cannot start {spec.name}: {meaning} ({text})", next_step=next_step)
    return SandboxError(
        f"the Docker daemon refused to start {spec.name}: {text}",
        next_step="see the daemon's log (`journalctl -u docker`)",
    )


class _RunningContainer:
    """Container of one role. A thread waits for its end, then reads its state and its log."""

    def __init__(self, client: APIClient, spec: RoleSpec, *, is_podman: bool) -> None:
        self._client = client
        self._is_podman = is_podman
        self._ran_out_of_memory: Future[bool] | None = None
        self._spec = spec
        self._ended: Future[ProcessExit] = Future()
        self._waiting: threading.Thread | None = None
        self._killed = False
        self._paused = False
        self._frozen_by: Freezer | None = None
        self._root_pid: int | None = None
        self._id = ""

    def start(self) -> None:
        """Start the created container.

        Raises:
            SandboxError: if the daemon refuses.
        """
        try:
            self._client.start(self._spec.name)
        except APIError as error:
            raise _start_error(error, self._spec) from error
        except RequestException as error:
            raise _daemon_error(error) from error
        pid = self.root_pid() if self._is_podman else None
        if pid is not None:
            self._ran_out_of_memory = watch_for_oom(pid, self._id)
        self._waiting = threading.Thread(target=self._await_end, daemon=True)
        self._waiting.start()

    def wait(self, timeout_s: float) -> ProcessExit | None:
        """Return how the container ended, or ``None`` if it still runs after ``timeout_s``."""
        try:
            return self._ended.result(timeout_s)
        except FutureTimeoutError:
            return None

    def kill(self) -> None:
        """Kill all processes of the container."""
        if self._ended.done():
            return
        # Set before the call: the other thread may see the end before the daemon answers this call.
        self._killed = True
        try:
            self._client.kill(self._spec.name)
        except _FAILURES as error:
            self._killed = False
            # The container or the daemon has ended.
            _log.debug("container %s was not killed: %s", self._spec.name, error)
        if self._frozen_by is not None:
            with suppress(OSError):  # it has ended
                self._frozen_by.thaw()  # or the signal waits

    def pause(self) -> None:
        """Stop all processes of the container with the kernel's freezer."""
        if not self._paused and not self._freeze():
            self._change("paused", self._client.pause)
        self._paused = True

    def resume(self) -> None:
        """Let the processes of the container run on, if it is paused."""
        if not self._paused:
            return
        if self._frozen_by is None:
            self._change("resumed", self._client.unpause)
        elif not self._ended.done():
            with suppress(FileNotFoundError):  # it has ended since
                self._frozen_by.thaw()
        self._paused, self._frozen_by = False, None

    def _freeze(self) -> bool:
        """Stop the container's processes without the daemon; return False if that is not possible here."""
        if self._freezer is None:
            return False
        try:
            self._freezer.freeze()
        except OSError as error:
            _log.debug("container %s was not stopped by its control group: %s", self._spec.name, error)
            return False
        self._frozen_by = self._freezer
        return True

    @cached_property
    def _freezer(self) -> Freezer | None:
        pid = self.root_pid()
        return find_freezer(pid, self._id) if pid else None

    def _change(self, what: str, change: Callable[[str], None]) -> None:
        failure: Exception | None = None
        for pause_s in _CHANGE_PAUSES_S:
            time.sleep(pause_s)
            try:
                change(self._spec.name)
            except _FAILURES as error:
                failure = error
            else:
                return
            if self._ended.done():
                return
            if not isinstance(failure, APIError):  # the daemon does not answer
                break
        raise SandboxError(f"container {self._spec.name} cannot be {what}: {failure}") from failure

    def root_pid(self) -> int | None:
        """Return the host PID of the container's init process; the daemon is asked only once."""
        if self._root_pid is None and not self._ended.done():
            try:
                found = self._client.inspect_container(self._spec.name)
                self._root_pid, self._id = int(found["State"]["Pid"]) or None, found["Id"]
            except _FAILURES as error:
                _log.debug("process of container %s is unknown: %s", self._spec.name, error)
        return self._root_pid

    def close(self) -> None:
        """Kill the container if it still runs, and wait until its end is known."""
        if self._waiting is not None:
            self.kill()
            self.wait(_KILL_TIMEOUT_S)

    def _await_end(self) -> None:
        try:
            self._ended.set_result(self._collect())
        except Exception as error:  # noqa: BLE001  # an error that ends this thread would leave the cell waiting
            _log.debug("lost sight of container %s: %s", self._spec.name, error)
            self._ended.set_result(ProcessExit(role=self._spec.role, code=None, lost=True, killed=self._killed))

    def _collect(self) -> ProcessExit:
        """Wait for the end, and read state and log while the container still exists."""
        self._client.wait(self._spec.name, timeout=None)
        killed = self._killed
        state = self._client.inspect_container(self._spec.name)["State"]
        if self._ran_out_of_memory is not None and self._ran_out_of_memory.result(_KILL_TIMEOUT_S):
            state["OOMKilled"] = True
        tail = LogTail()
        # Podman puts parts of lines into the wrong order where it counts lines; a log has 1 MB at most.
        tail.add(self._client.logs(self._spec.name, tail="all" if self._is_podman else _LOG_LINES))
        end = exit_of(self._spec.role, state, tail.text(), killed=killed)
        if self._is_podman and end.signal == signal.SIGKILL and not (end.killed or end.oom_killed):
            self._see_it_stay()
        return end

    def _see_it_stay(self) -> None:
        """Look whether the container stays: Podman kills one that is removed from outside before it says so.

        Raises:
            NotFound: if it was removed.
        """
        for pause_s in _REMOVAL_PAUSES_S:
            time.sleep(pause_s)
            self._client.inspect_container(self._spec.name)


def exit_of(role: Role, state: dict[str, Any], log_tail: str, *, killed: bool) -> ProcessExit:
    """Translate the inspected ``State`` of a container that has ended.

    A container that is being removed from outside was killed by that removal, so its role counts as lost.
    """
    if state.get("Status") in ("removing", "dead"):
        return ProcessExit(role=role, code=None, lost=True, log_tail=log_tail)
    code = int(state["ExitCode"])
    by_signal = _SIGNAL_BASE < code <= _SIGNAL_BASE + _LAST_SIGNAL
    return ProcessExit(
        role=role,
        code=None if by_signal else code,
        signal=code - _SIGNAL_BASE if by_signal else None,
        oom_killed=bool(state.get("OOMKilled")),
        killed=killed,
        log_tail=log_tail,
    )
