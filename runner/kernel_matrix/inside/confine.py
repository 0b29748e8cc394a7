"""Starts one module of the core in a place of its own, watches it, and ends all it started (process engine).

Run as a file, ``python -I -S -B confine.py``, so that nothing but this interpreter's own standard library is imported
while it still has the caller's rights. Orders come on standard input: a command line can be read by what is started
here. Up to three processes::

    supervisor     leads a session; ends with the runner that started it, and everything below ends with it
    └── init       only with namespaces: process 1 of a PID namespace, sees a small read-only tree as its root
        └── module limits set, user dropped, no new privileges; becomes ``python -m <module>``

What happens is told on ``orders.report_fd``, one JSON object a line: ``{"started": true}`` or ``{"error": text}``,
then ``{"status": wait status}``. When that channel ends without a status, the process was lost. The module has no part
in it.
"""

# ruff: noqa: PTH103, PTH112, PTH114, PTH115, PTH116, PTH120, PTH123, PTH208, PTH211  # every start pays for this file's imports; pathlib would be a third of them

import ctypes
import functools
import json
import os
import resource
import signal
import sys
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Set, Tuple

NONE = "none"
"""``Orders.namespaces``: the caller's own namespaces."""
ROOT = "root"
"""``Orders.namespaces``: new PID, mount, network, IPC and UTS namespaces, made with root's rights."""
USER = "user"
"""``Orders.namespaces``: the same, inside a new user namespace that gives the rights to make them."""

READ_ONLY = "ro"
WRITABLE = "rw"
DEVICE = "dev"


class BindMount(NamedTuple):
    """A path of the host shown inside. A source that is a symbolic link is copied as a link."""

    source: str
    target: str
    mode: str = READ_ONLY
    """``ro``; ``rw``; or ``dev``, a device node that can be used."""


class ConfineRequest(NamedTuple):
    """What to start and how to confine it; crosses to the launcher as JSON."""

    argv: List[str]
    env: Dict[str, str]
    cwd: str
    report_fd: int
    parent: int
    """Process id of the runner; the supervisor stops when it is not its parent any more."""
    namespaces: str
    limits: Dict[str, int]
    """Name of a limit without ``RLIMIT_`` → its value."""
    pids: Optional[int] = None
    """Processes and threads the module's user may have beyond those it has now; null sets no limit."""
    uid: Optional[int] = None
    """User and group to become; null keeps the caller's. With ``USER``: what the caller is called inside."""
    root: str = ""
    """Empty folder where the private tree is put together; only with namespaces."""
    binds: Tuple[BindMount, ...] = ()
    """Parents before children; only with namespaces."""
    empty_files: Tuple[str, ...] = ()
    """Files made inside that tree, without content."""
    tmpfs_bytes: int = 0
    shm_bytes: int = 0
    first_out_of_memory: bool = False
    """True: when the host runs out of memory, the kernel takes this one first."""

    @classmethod
    def from_json(cls, text: str) -> "ConfineRequest":
        """Read what :meth:`to_json` wrote."""
        data = json.loads(text)
        data["binds"] = tuple(BindMount(*bind) for bind in data["binds"])
        return cls(**data)

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(self._asdict())


_libc = ctypes.CDLL(None, use_errno=True)

_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC = 1, 2, 4, 8
_MS_REMOUNT, _MS_BIND, _MS_REC, _MS_PRIVATE = 32, 4096, 16384, 1 << 18
_MNT_DETACH = 2
_CLONE_NEWNS, _CLONE_NEWUTS, _CLONE_NEWIPC = 0x00020000, 0x04000000, 0x08000000
_CLONE_NEWUSER, _CLONE_NEWPID, _CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 36, 38

_RESTRICTIONS = {
    READ_ONLY: _MS_NOSUID | _MS_NODEV | _MS_RDONLY,
    WRITABLE: _MS_NOSUID | _MS_NODEV,
    DEVICE: _MS_NOSUID,
}

_MOUNT_OPTIONS = {
    "ro": _MS_RDONLY,
    "nosuid": _MS_NOSUID,
    "nodev": _MS_NODEV,
    "noexec": _MS_NOEXEC,
    "noatime": 1024,
    "nodiratime": 2048,
    "relatime": 1 << 21,
}
_WATCHED = {signal.SIGCHLD, signal.SIGTERM}


def main() -> None:
    """Carry out the orders given on standard input."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
    orders = ConfineRequest.from_json(sys.stdin.read())
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.set_inheritable(orders.report_fd, False)
    os.umask(0o022)
    try:
        supervise(orders)
    except OSError as error:
        _report(orders, error=str(error))
        sys.exit(1)


def supervise(orders: ConfineRequest) -> None:
    """Start the module, tell how it went, and leave nothing of it behind.

    :raises OSError: when the kernel refuses something that was ordered; nothing runs then.
    """
    if orders.pids is not None:
        orders = orders._replace(limits=dict(orders.limits, NPROC=_tasks_of(_real_uid(orders)) + orders.pids))
    _die_with_parent(signal.SIGTERM)
    if os.getppid() != orders.parent:
        return
    status = _run_here(orders) if orders.namespaces == NONE else _run_in_namespaces(orders)
    _report(orders, status=status)


def _run_here(orders: ConfineRequest) -> int:
    """Run the module in the caller's namespaces; its wait status."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    status = _watch(_start(orders, _become_module))
    _end_descendants()
    return status


def _run_in_namespaces(orders: ConfineRequest) -> int:
    """Run init and the module in namespaces of their own; the module's wait status."""
    told, tell = os.pipe()
    _new_process_namespace(orders)
    init = _start(orders, functools.partial(_become_init, tell))
    os.close(tell)
    _watch(init)
    with open(told, "rb") as channel:
        status = channel.read()
    # An init that was killed took the module with it, by the same signal.
    return int(status) if status else int(signal.SIGKILL)


def _start(orders: ConfineRequest, begin: Callable[[ConfineRequest, int], None]) -> int:
    """Fork a process that does ``begin`` and wait until the module runs; its process id."""
    told, tell = os.pipe()
    child = _fork(begin, orders, tell)
    os.close(tell)
    with open(told, "rb") as channel:
        error = channel.read()
    if error:
        os.waitpid(child, 0)
        raise OSError(error.decode(errors="replace"))
    _report(orders, started=True)
    return child


def _fork(begin: Callable[[ConfineRequest, int], None], orders: ConfineRequest, tell: int) -> int:
    """Fork a process that does ``begin``; what stops it is written to ``tell``, which closes when the module runs."""
    child = os.fork()
    if child:
        return child
    try:
        begin(orders, tell)
    except BaseException as error:  # noqa: BLE001  # whatever it is, the supervisor must hear of it
        os.write(tell, str(error).encode())
    finally:
        os._exit(127)


def _become_init(tell_status: int, orders: ConfineRequest, tell_error: int) -> None:
    """Be process 1 of the new PID namespace: build the private tree, start the module, reap; never returns."""
    _die_with_parent(signal.SIGKILL)
    _unshare(_CLONE_NEWNS | _CLONE_NEWNET | _CLONE_NEWIPC | _CLONE_NEWUTS)
    _build_root(orders)
    child = _fork(_become_module, orders, tell_error)
    os.close(tell_error)
    os.write(tell_status, str(_watch(child)).encode())
    os._exit(0)


def _become_module(orders: ConfineRequest, _tell_error: int) -> None:
    """Give up every right that is not needed and run the module; never returns."""
    if orders.first_out_of_memory:
        _write("/proc/self/oom_score_adj", "1000")
    for name, value in orders.limits.items():
        _limit(getattr(resource, "RLIMIT_" + name), value)
    if orders.uid is not None and orders.namespaces != USER:
        os.setgroups([])
        os.setresgid(orders.uid, orders.uid, orders.uid)
        os.setresuid(orders.uid, orders.uid, orders.uid)
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    _die_with_parent(signal.SIGKILL)  # after the change of user, which clears it
    os.chdir(orders.cwd)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _WATCHED)
    os.execve(orders.argv[0], orders.argv, orders.env)  # noqa: S606  # no shell is wanted here


def _limit(which: int, value: int) -> None:
    """Lower a limit for good; one that is lower already stays."""
    hard = resource.getrlimit(which)[1]
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(which, (value, value))


def _watch(child: int) -> int:
    """Reap until ``child`` has ended, killing it when told to stop; its wait status."""
    while True:
        if signal.sigwait(_WATCHED) == signal.SIGTERM:
            os.kill(child, signal.SIGKILL)
        status = _reap(child)
        if status is not None:
            return status


def _reap(child: int) -> Optional[int]:
    """Collect what has ended; the wait status of ``child`` when it is among it."""
    while True:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == child:
            return status
        if pid == 0:
            return None


def _end_descendants() -> None:
    """Kill and reap until no child is left; orphans come to us because we are their subreaper."""
    while True:
        for pid in _descendants():
            _kill(pid)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _descendants() -> Set[int]:
    """Process ids of all that stem from this process."""
    parents = {pid: _parent_of(pid) for pid in _processes()}
    family = {os.getpid()}
    while True:
        more = {pid for pid, parent in parents.items() if parent in family} - family
        if not more:
            return family - {os.getpid()}
        family |= more


def _processes() -> List[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _parent_of(pid: int) -> Optional[int]:
    """Parent of a process; null when it has ended meanwhile."""
    try:
        with open("/proc/{}/stat".format(pid), "rb") as file:
            # The name in parentheses may hold anything, spaces and parentheses too.
            return int(file.read().rpartition(b")")[2].split()[1])
    except OSError:
        return None


def _real_uid(orders: ConfineRequest) -> int:
    """The user, as the host sees it, that the module will run as."""
    return os.getuid() if orders.uid is None or orders.namespaces == USER else orders.uid


def _tasks_of(uid: int) -> int:
    """Threads that a user has now: the kernel counts them all together, whoever started them."""
    return sum(_threads(pid, uid) for pid in _processes())


def _threads(pid: int, uid: int) -> int:
    """Threads of a process; none when it belongs to another user or has ended."""
    place = "/proc/{}".format(pid)
    try:
        return len(os.listdir(place + "/task")) if os.stat(place).st_uid == uid else 0
    except OSError:
        return 0


def _new_process_namespace(orders: ConfineRequest) -> None:
    """Make the next fork process 1 of a PID namespace, in a user namespace of its own where that is ordered."""
    if orders.namespaces == USER:
        uid, gid = os.getuid(), os.getgid()
        inside = uid if orders.uid is None else orders.uid
        _unshare(_CLONE_NEWUSER)
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", "{} {} 1".format(inside, uid)),
            ("gid_map", "{} {} 1".format(inside, gid)),
        ):
            _write("/proc/self/" + name, text)
    _unshare(_CLONE_NEWPID)


def _build_root(orders: ConfineRequest) -> None:
    """Put the private tree together from bind mounts and make it the root of this mount namespace."""
    root = orders.root
    _mount(None, "/", None, _MS_REC | _MS_PRIVATE)
    _mount("tmpfs", root, "tmpfs", _MS_NOSUID | _MS_NODEV, "size=1m,mode=755")
    for place, kind, options in (
        ("/tmp", "tmpfs", "size={},mode=1777".format(orders.tmpfs_bytes)),  # noqa: S108  # a new one, seen by nobody else
        ("/dev", "tmpfs", "size=64k,mode=755"),
        ("/dev/shm", "tmpfs", "size={},mode=1777".format(orders.shm_bytes)),  # noqa: S108  # a new one, seen by nobody else
        ("/proc", "proc", ""),
    ):
        os.makedirs(root + place)
        _mount(kind, root + place, kind, _MS_NOSUID | _MS_NODEV, options)
    for name, target in (("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")):
        os.symlink("/proc/self/fd" + target, root + "/dev/" + name)
    for bind in orders.binds:
        _show(bind, root + bind.target)
    for path in orders.empty_files:
        _make_file(root + path)
    _protect(root + "/dev", READ_ONLY, only=root + "/dev")
    _protect(root, READ_ONLY, only=root)
    os.chdir(root)
    _check(_libc.pivot_root(b".", b"."), "pivot_root to " + root)
    _check(_libc.umount2(b".", _MNT_DETACH), "unmount the host's root")
    os.chdir("/")


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


def _make_file(path: str) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "ab"):
        pass


def _show(bind: BindMount, place: str) -> None:
    """Show one path of the host at ``place``."""
    if os.path.islink(bind.source):
        os.makedirs(os.path.dirname(place), exist_ok=True)
        os.symlink(os.readlink(bind.source), place)
        return
    if os.path.isdir(bind.source):
        os.makedirs(place, exist_ok=True)
    else:
        _make_file(place)
    _mount(bind.source, place, None, _MS_BIND | _MS_REC)
    _protect(place, bind.mode)


def _protect(place: str, mode: str, only: str = "") -> None:
    """Restrict the mounts at and below ``place`` (or that ``only``), keeping the restrictions they have."""
    for point, flags in _mounts():
        if (point == place or point.startswith(place + "/")) and only in ("", point):
            _mount(None, point, None, _MS_REMOUNT | _MS_BIND | flags | _RESTRICTIONS[mode])


def _mounts() -> List[Tuple[str, int]]:
    """(mount point, flags) of every mount of this namespace."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        rows = [line.split(" ") for line in file]
    return [(_unescape(row[4]), sum(_MOUNT_OPTIONS.get(option, 0) for option in row[5].split(","))) for row in rows]


def _unescape(path: str) -> str:
    """Undo mountinfo's octal escapes of blanks and backslashes."""
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        path = path.replace(code, character)
    return path


def _mount(source: Optional[str], target: str, kind: Optional[str], flags: int, options: str = "") -> None:
    raw = [os.fsencode(text) if text else None for text in (source, target, kind, options)]
    result = _libc.mount(raw[0], raw[1], raw[2], ctypes.c_ulong(flags), raw[3])
    _check(result, "mount {} at {}".format(source or "with other flags", target))


def _unshare(flags: int) -> None:
    _check(_libc.unshare(flags), "new namespaces")


def _prctl(option: int, value: int) -> None:
    number = ctypes.c_ulong
    _check(_libc.prctl(option, number(value), number(0), number(0), number(0)), "prctl {}".format(option))


def _die_with_parent(number: int) -> None:
    _prctl(_PR_SET_PDEATHSIG, number)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, "{}: {}".format(what, os.strerror(number)))


def _report(orders: ConfineRequest, **what: Any) -> None:
    """Tell the runner; when it is gone there is nobody to tell."""
    try:
        os.write(orders.report_fd, json.dumps(what).encode() + b"\n")
    except BrokenPipeError:
        return


if __name__ == "__main__":
    main()
