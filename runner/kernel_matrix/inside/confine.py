"""Launcher of a module in a confined process, whose descendants it ends (process sandbox).

Run as a file, ``python -I -S -B confine.py``, so that only this interpreter's standard library is imported while it has
the caller's rights. The request comes on standard input, because the confined process can read command lines. Up to
three processes run::

    supervisor     leads a session; ends with the runner that started it, and everything below ends with it
    └── init       only with namespaces: process 1 of a PID namespace, sees a small read-only tree as its root
        └── module limits set, user dropped, no new privileges, calls filtered; becomes ``python -m <module>``

Events are written to ``request.report_fd``, one JSON object per line: ``{"started": process id}`` of the supervisor's
child, or ``{"error": text}``, then ``{"status": wait status}``. If the stream ends without a status, the process was
lost. The module cannot write to it.
"""

# ruff: noqa: PTH103, PTH112, PTH114, PTH115, PTH116, PTH120, PTH123, PTH208, PTH211  # every start pays for this file's imports; pathlib would be a third of them

import ctypes
import fcntl
import functools
import json
import os
import resource
import signal
import socket
import struct
import sys
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Set, Tuple

# Values of ``ConfineRequest.namespaces``.
NONE = "none"  # the caller's own namespaces
ROOT = "root"  # new PID, mount, network, IPC and UTS namespaces, made with root's rights
USER = "user"  # the same, inside a new user namespace that gives the rights to make them

READ_ONLY = "ro"
WRITABLE = "rw"
DEVICE = "dev"

REFUSE_CONNECTIONS = "KERNEL_MATRIX_REFUSE_CONNECTIONS"
"""Variable with a seccomp program as hexadecimal digits, for :func:`refuse_connections`."""


class BindMount(NamedTuple):
    """A path of the host shown inside. A symbolic link is copied as a link."""

    source: str
    target: str
    mode: str = READ_ONLY
    """``ro``; ``rw``; or ``dev`` for a device node that can be used."""


class ConfineRequest(NamedTuple):
    """The process to start and its confinement, sent as JSON."""

    argv: List[str]
    """The first is a path, or a name that is looked up in ``PATH`` of ``env``."""
    env: Dict[str, str]
    cwd: str
    report_fd: int
    parent: int
    """Process id of the runner; the supervisor stops when it has another parent."""
    namespaces: str
    limits: Dict[str, int]
    """Limit's name without ``RLIMIT_`` → its value."""
    pids: Optional[int] = None
    """Processes and threads that the module's user may add to those it has now; None sets no limit."""
    uid: Optional[int] = None
    """User and group to become; None keeps the caller's. With ``USER``, the caller's id inside."""
    groups: Tuple[int, ...] = ()
    """Further groups to join with ``uid``, by number; with ``USER`` the caller's are kept."""
    root: str = ""
    """Empty folder in which the private tree is built; only with namespaces."""
    binds: Tuple[BindMount, ...] = ()
    """With namespaces, the mounts of the private tree, parents before children; with ``landlock`` paths of the host."""
    empty_files: Tuple[str, ...] = ()
    """Empty files to make inside that tree."""
    tmpfs_bytes: int = 0
    shm_bytes: int = 0
    first_out_of_memory: bool = False
    """If the host runs out of memory, let the kernel kill this process first."""
    landlock: bool = False
    """Without namespaces, let the kernel refuse every file but those at and below ``binds``."""
    system_call_filter: str = ""
    """Seccomp program as hexadecimal digits; empty installs none."""
    loopback: bool = False
    """With namespaces, let processes inside reach each other over the loopback interface."""
    memory_group_fd: int = -1
    """File of a control group that takes the id of a process that shall join it, open; -1 if there is no group."""

    @classmethod
    def from_json(cls, text: str) -> "ConfineRequest":
        """Read what :meth:`to_json` wrote."""
        data = json.loads(text)
        data["binds"] = tuple(BindMount(*bind) for bind in data["binds"])
        data["groups"] = tuple(data["groups"])
        return cls(**data)

    def to_json(self) -> str:
        """Return one line of JSON."""
        return json.dumps(self._asdict())


_libc = ctypes.CDLL(None, use_errno=True)

_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC = 1, 2, 4, 8
_MS_REMOUNT, _MS_BIND, _MS_REC, _MS_PRIVATE = 32, 4096, 16384, 1 << 18
_MNT_DETACH = 2
_CLONE_NEWNS, _CLONE_NEWUTS, _CLONE_NEWIPC = 0x00020000, 0x04000000, 0x08000000
_CLONE_NEWUSER, _CLONE_NEWPID, _CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
_SIOCSIFFLAGS, _IFF_UP, _IFF_RUNNING = 0x8914, 0x1, 0x40
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 36, 38
_CAPABILITY_VERSION_3 = 0x20080522
_FILE_CAPABILITIES = 1 << 1 | 1 << 2  # to read and write files, and to search folders, of other users
_SECCOMP = {"x86_64": 317, "aarch64": 277}  # number of the system call, which the C library does not offer
_SECCOMP_SET_MODE_FILTER = 1
_SECCOMP_FILTER_FLAG_TSYNC = 1  # for all threads, not only for the one that installs it
_SECCOMP_FILTER_FLAG_SPEC_ALLOW = 4  # without it, kernels before 5.16 slow down every memory access of the process
_FILTER_INSTRUCTION_BYTES = 8  # size of ``struct sock_filter``

# Landlock, since Linux 5.13: numbers of its system calls, the same on all processors, and rights. A kernel knows those
# of its own version and older ones.
_LANDLOCK_CREATE, _LANDLOCK_ADD_RULE, _LANDLOCK_RESTRICT_SELF = 444, 445, 446
_LANDLOCK_PATH_BENEATH, _LANDLOCK_ASK_VERSION = 1, 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR, _TRUNCATE, _IOCTL_DEV = 1, 2, 4, 8, 1 << 14, 1 << 15
_MAKE_CHAR, _MAKE_BLOCK = 1 << 6, 1 << 11
# Version → all rights to files that it knows
_FILE_RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
_OF_NO_FOLDER = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_NET_RIGHTS = 3  # to bind and to connect TCP sockets, from version 4 on
_SCOPES = 3  # abstract sockets and signals stay among the processes of the module, from version 6 on
_THREADS = "threads"
# Where a process writes the names of its threads; CUDA does not start if it cannot.
_OWN_THREADS = BindMount("/proc/self/task", "/proc/self/task", _THREADS)
_ALLOWED = {
    _THREADS: _WRITE_FILE | _TRUNCATE,
    READ_ONLY: _EXECUTE | _READ_FILE | _READ_DIR,
    WRITABLE: ~(_MAKE_CHAR | _MAKE_BLOCK),
    DEVICE: _READ_FILE | _WRITE_FILE | _IOCTL_DEV,
}

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
    """Carry out the request given on standard input."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
    request = ConfineRequest.from_json(sys.stdin.read())
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.set_inheritable(request.report_fd, False)
    if request.memory_group_fd >= 0:
        os.set_inheritable(request.memory_group_fd, False)
    os.umask(0o022)
    try:
        supervise(request)
    except OSError as error:
        _report(request, error=str(error))
        sys.exit(1)


def supervise(request: ConfineRequest) -> None:
    """Start the module, report its end, and remove all its processes.

    Raises:
        OSError: If the kernel refuses a part of the request; nothing runs then.
    """
    if request.pids is not None:
        request = request._replace(limits=dict(request.limits, NPROC=_tasks_before(request) + request.pids))
    _die_with_parent(signal.SIGTERM)
    if os.getppid() != request.parent:
        return
    status = _run_here(request) if request.namespaces == NONE else _run_in_namespaces(request)
    _report(request, status=status)


def _run_here(request: ConfineRequest) -> int:
    """Run the module in the caller's namespaces; return its wait status."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    status = _watch(_start(request, _become_module))
    _end_descendants()
    return status


def _run_in_namespaces(request: ConfineRequest) -> int:
    """Run init and the module in their own namespaces; return the module's wait status."""
    reader, writer = os.pipe()
    _new_process_namespace(request)
    init = _start(request, functools.partial(_become_init, writer))
    os.close(writer)
    _watch(init)
    with open(reader, "rb") as channel:
        status = channel.read()
    # If init was killed, the kernel killed the module with the same signal.
    return int(status) if status else int(signal.SIGKILL)


def _start(request: ConfineRequest, begin: Callable[[ConfineRequest, int], None]) -> int:
    """Fork a process that runs ``begin``, and wait until the module runs; return its process id."""
    reader, writer = os.pipe()
    child = _fork(begin, request, writer)
    os.close(writer)
    with open(reader, "rb") as channel:
        error = channel.read()
    if error:
        os.waitpid(child, 0)
        raise OSError(error.decode(errors="replace"))
    _report(request, started=child)
    return child


def _fork(begin: Callable[[ConfineRequest, int], None], request: ConfineRequest, writer: int) -> int:
    """Fork a process that runs ``begin``. An error is written to ``writer``, which closes when the module runs."""
    child = os.fork()
    if child:
        return child
    try:
        begin(request, writer)
    except BaseException as error:  # noqa: BLE001  # every error is reported to the supervisor
        os.write(writer, str(error).encode())
    finally:
        os._exit(127)


def _become_init(status_writer: int, request: ConfineRequest, error_writer: int) -> None:
    """Act as process 1 of the new PID namespace: build the tree, start the module, reap; never returns."""
    _die_with_parent(signal.SIGKILL)
    _unshare(_CLONE_NEWNS | _CLONE_NEWNET | _CLONE_NEWIPC | _CLONE_NEWUTS)
    if request.loopback:
        _start_loopback()
    _build_root(request)
    child = _fork(_become_module, request, error_writer)
    os.close(error_writer)
    os.write(status_writer, str(_watch(child)).encode())
    os._exit(0)


def _start_loopback() -> None:
    """Start the loopback interface of this network namespace, which a new one has, stopped."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sh14x", b"lo", _IFF_UP | _IFF_RUNNING)  # struct ifreq
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, request)


def _become_module(request: ConfineRequest, _error_writer: int) -> None:
    """Drop all rights that are not needed and run the module; never returns."""
    if request.memory_group_fd >= 0:
        os.write(request.memory_group_fd, b"0")  # this process
    if request.first_out_of_memory:
        _write("/proc/self/oom_score_adj", "1000")
    for name, value in request.limits.items():
        _limit(getattr(resource, "RLIMIT_" + name), value)
    if request.uid is not None and request.namespaces != USER:
        os.setgroups(request.groups)
        os.setresgid(request.uid, request.uid, request.uid)
        os.setresuid(request.uid, request.uid, request.uid)
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    if request.namespaces == NONE and os.geteuid() == 0:
        _drop_capabilities()
    _die_with_parent(signal.SIGKILL)  # after the change of user, which clears it
    os.chdir(request.cwd)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _WATCHED)
    if request.landlock:
        _restrict_files(request.binds)
    if request.system_call_filter:
        _filter_system_calls(bytes.fromhex(request.system_call_filter))  # after everything that it would refuse
    program = _find_program(request.argv[0], request.env.get("PATH", ""))
    os.execve(program, request.argv, request.env)  # noqa: S606  # no shell is wanted here


def _find_program(name: str, path: str) -> str:
    """Return the path of a program that is given by its path or its name.

    It is called inside a private tree, where this interpreter's own modules may be missing: it must import nothing.
    """
    if "/" in name:
        return name
    places = (folder + "/" + name for folder in path.split(":"))
    return next((place for place in places if os.access(place, os.X_OK)), name)


def _drop_capabilities() -> None:
    """Give up root's capabilities but those to files of others, which the folders of a judge need.

    Without new privileges, no program that is started gets them back.
    """
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)  # of this process
    kept = (ctypes.c_uint32 * 6)(_FILE_CAPABILITIES, _FILE_CAPABILITIES)  # effective and permitted
    _check(_libc.capset(ctypes.byref(header), ctypes.byref(kept)), "drop capabilities")


def landlock_version() -> int:
    """Return the version of Landlock that the kernel has; 0 if it has none."""
    return max(0, int(_libc.syscall(_LANDLOCK_CREATE, None, ctypes.c_size_t(0), _LANDLOCK_ASK_VERSION)))


def _restrict_files(binds: Tuple[BindMount, ...]) -> None:
    """Let the kernel refuse this process, for good, all files but those at and below ``binds`` and of its own threads.

    TCP sockets, and signals and abstract sockets to processes outside, are refused too where the kernel can do that.
    """
    version = landlock_version()
    handled = _FILE_RIGHTS[max((known for known in _FILE_RIGHTS if known <= version), default=1)]
    attributes = (handled, _NET_RIGHTS if version >= 4 else 0, _SCOPES if version >= 6 else 0)
    raw = (ctypes.c_uint64 * 3)(*attributes)
    size = ctypes.c_size_t(24 if version >= 6 else 16 if version >= 4 else 8)
    ruleset = _libc.syscall(_LANDLOCK_CREATE, ctypes.byref(raw), size, 0)
    _check(min(ruleset, 0), "make a Landlock ruleset")  # a descriptor is no error
    for bind in (*binds, _OWN_THREADS):
        _allow_below(ruleset, bind, handled)
    _check(_libc.syscall(_LANDLOCK_RESTRICT_SELF, ruleset, 0), "restrict files by Landlock")
    os.close(ruleset)


def _allow_below(ruleset: int, bind: BindMount, handled: int) -> None:
    """Allow what the mode of ``bind`` does at its source, and below it if that is a folder."""
    try:
        place = os.open(bind.source, os.O_PATH | os.O_CLOEXEC)
    except PermissionError:
        return  # the user of the module cannot reach it anyway
    try:
        rights = handled & _ALLOWED[bind.mode] & (-1 if os.path.isdir(bind.source) else _OF_NO_FOLDER)
        # struct landlock_path_beneath_attr, which is packed
        rule = rights.to_bytes(8, sys.byteorder) + place.to_bytes(4, sys.byteorder)
        result = _libc.syscall(_LANDLOCK_ADD_RULE, ruleset, _LANDLOCK_PATH_BENEATH, rule, 0)
        _check(result, "allow {} by Landlock".format(bind.source))
    finally:
        os.close(place)


def _limit(which: int, value: int) -> None:
    """Lower a limit for good; keep a limit that is lower already."""
    hard = resource.getrlimit(which)[1]
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(which, (value, value))


def _watch(child: int) -> int:
    """Reap until ``child`` has ended, and kill it on SIGTERM; return its wait status."""
    while True:
        if signal.sigwait(_WATCHED) == signal.SIGTERM:
            os.kill(child, signal.SIGKILL)
        status = _reap(child)
        if status is not None:
            return status


def _reap(child: int) -> Optional[int]:
    """Collect ended processes; return the wait status of ``child`` if it is one of them."""
    while True:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == child:
            return status
        if pid == 0:
            return None


def _end_descendants() -> None:
    """Kill and reap until no child is left; as their subreaper, this process becomes the parent of orphans."""
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
    """Return the process ids of all descendants of this process."""
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
    """Return the parent of a process, or None if the process has ended."""
    try:
        with open("/proc/{}/stat".format(pid), "rb") as file:
            # The name in parentheses may contain spaces and parentheses.
            return int(file.read().rpartition(b")")[2].split()[1])
    except OSError:
        return None


def counts_tasks_per_namespace() -> bool:
    """Return whether the kernel counts the tasks of a user in each user namespace apart, as Linux does since 5.14."""
    major, minor = os.uname().release.split(".")[:2]
    return (int(major), int("".join(filter(str.isdigit, minor)) or 0)) >= (5, 14)


def _tasks_before(request: ConfineRequest) -> int:
    """Threads that the kernel counts against the module's limit before the module has started any."""
    if request.namespaces == USER and counts_tasks_per_namespace():
        return 2  # in a new user namespace there are only the supervisor and init
    # The user that the module will run as, as the host sees it. The limit counts all threads of this user together.
    uid = os.getuid() if request.uid is None or request.namespaces == USER else request.uid
    return sum(_threads(pid, uid) for pid in _processes())


def _threads(pid: int, uid: int) -> int:
    """Count the threads of a process; 0 if it belongs to another user or has ended."""
    place = "/proc/{}".format(pid)
    try:
        return len(os.listdir(place + "/task")) if os.stat(place).st_uid == uid else 0
    except OSError:
        return 0


def _new_process_namespace(request: ConfineRequest) -> None:
    """Make the next fork process 1 of a PID namespace, in a new user namespace if the request asks for one."""
    if request.namespaces == USER:
        uid, gid = os.getuid(), os.getgid()
        inside = uid if request.uid is None else request.uid
        _unshare(_CLONE_NEWUSER)
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", "{} {} 1".format(inside, uid)),
            ("gid_map", "{} {} 1".format(inside, gid)),
        ):
            _write("/proc/self/" + name, text)
    _unshare(_CLONE_NEWPID)


def _build_root(request: ConfineRequest) -> None:
    """Build the private tree from bind mounts and make it the root of this mount namespace."""
    root = request.root
    _mount(None, "/", None, _MS_REC | _MS_PRIVATE)
    _mount("tmpfs", root, "tmpfs", _MS_NOSUID | _MS_NODEV, "size=1m,mode=755")
    for place, kind, options in (
        ("/tmp", "tmpfs", "size={},mode=1777".format(request.tmpfs_bytes)),  # noqa: S108  # a new one, private to this tree
        ("/dev", "tmpfs", "size=64k,mode=755"),
        ("/dev/shm", "tmpfs", "size={},mode=1777".format(request.shm_bytes)),  # noqa: S108  # a new one, private to this tree
        ("/proc", "proc", ""),
    ):
        os.makedirs(root + place)
        _mount(kind, root + place, kind, _MS_NOSUID | _MS_NODEV, options)
    for name, target in (("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")):
        os.symlink("/proc/self/fd" + target, root + "/dev/" + name)
    for bind in request.binds:
        _show(bind, root + bind.target)
    for path in request.empty_files:
        _make_file(root + path)
    _protect(root + "/dev", READ_ONLY, only=root + "/dev")
    _protect(root, READ_ONLY, only=root)
    os.chdir(root)
    _check(_libc.pivot_root(b".", b"."), "pivot_root to " + root)
    _check(_libc.umount2(b".", _MNT_DETACH), "unmount the host's root")
    os.chdir("/")


def _write(path: str, text: str) -> None:
    with open(path, "wb") as file:  # a private tree may lack this interpreter's encodings
        file.write(text.encode())


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
    """Restrict the mounts at and below ``place``, or ``only`` that one, and keep their existing restrictions."""
    for point, flags in _mounts():
        if (point == place or point.startswith(place + "/")) and only in ("", point):
            _mount(None, point, None, _MS_REMOUNT | _MS_BIND | flags | _RESTRICTIONS[mode])


def _mounts() -> List[Tuple[str, int]]:
    """Return (mount point, flags) of every mount of this namespace."""
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


class _FilterProgram(ctypes.Structure):
    """``struct sock_fprog``."""

    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def refuse_connections() -> None:
    """Refuse this process and all that it will start to connect a socket, if the sandbox asks for it.

    A role calls this when it has its own connection, before any code that is not trusted runs. Where a role has no
    private tree, it could connect to every socket file that its user may use, a Docker daemon's for example.
    """
    program = os.environ.pop(REFUSE_CONNECTIONS, "")
    if program:
        _filter_system_calls(bytes.fromhex(program), _SECCOMP_FILTER_FLAG_TSYNC)


def _filter_system_calls(program: bytes, flags: int = 0) -> None:
    """Install a seccomp program for this process and all that it will start; it can never be removed."""
    filled = _FilterProgram(len(program) // _FILTER_INSTRUCTION_BYTES, program)
    number = ctypes.c_ulong
    call, mode = _SECCOMP[os.uname().machine], _SECCOMP_SET_MODE_FILTER
    flags |= _SECCOMP_FILTER_FLAG_SPEC_ALLOW
    result = _libc.syscall(number(call), number(mode), number(flags), ctypes.byref(filled))
    _check(result, "system call filter")


def _die_with_parent(number: int) -> None:
    _prctl(_PR_SET_PDEATHSIG, number)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, "{}: {}".format(what, os.strerror(number)))


def _report(request: ConfineRequest, **what: Any) -> None:
    """Write an event for the runner; do nothing if the runner is gone."""
    try:
        os.write(request.report_fd, json.dumps(what).encode() + b"\n")
    except BrokenPipeError:
        return


if __name__ == "__main__":
    main()
