"""What candidates do on bad days, one function each: ``python -m act NAME [ARGUMENTS]`` inside a sandbox."""

# ruff: noqa: T201  # what probes print is what tests read

import contextlib
import ctypes
import errno
import json
import mmap
import os
import platform
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

ADD_KEY, KEYCTL = (248, 250) if platform.machine() == "x86_64" else (217, 219)
USER_KEYRING = -4
PTRACE_SEIZE = 0x4206
HOLD_S = 1.5
"""Longer than the time between two looks at the memory of a role with a small limit."""


def exit_with(code):
    """End with an exit code, after a word."""
    print("said before the end")
    sys.exit(int(code))


def exit_at_once():
    """End without any clean-up, looking successful."""
    os._exit(0)


def segfault():
    """Read address zero."""
    ctypes.string_at(0)


def hang(*_token):
    """Never end, and say nothing: a broken pipe would end it."""
    while True:
        time.sleep(60)


def refuse_to_end(*_token):
    """Try everything that could let this process go on after its runner's end, then hang in a child of its own."""
    for number in {signal.SIGTERM, signal.SIGIO, signal.SIGHUP, signal.SIGCHLD}:
        signal.signal(number, signal.SIG_IGN)
    (guard,) = {int(path.name) for path in Path("/proc").glob("[0-9]*")} - {1, os.getpid()}
    libc = ctypes.CDLL(None, use_errno=True)
    for process in (1, guard):
        assert libc.ptrace(PTRACE_SEIZE, process, None, None) == -1
    with contextlib.suppress(PermissionError):
        assert not list(Path(f"/proc/{guard}/fd").iterdir()), "its connection could be held open"
    assert f"TracerPid:\t{guard}\n" in Path("/proc/1/status").read_text()
    for process in (1, guard):
        os.kill(process, signal.SIGSTOP)
    if os.fork() == 0:
        os.setsid()
    print("refuses", flush=True)
    hang()


def count_up(folder):
    """Count in three processes, one of which has left its parent, each in a file of its own."""
    if os.fork() == 0:
        os.setsid()
        os.fork()
    with Path(folder, str(os.getpid())).open("w") as file:
        while True:
            file.write(".")
            file.flush()
            time.sleep(0.001)


def fork_bomb(*_token):
    """Multiply for ever, but never beyond 200: a test of a limit must not need the limit to be survived."""
    allowed, refill = os.pipe()
    os.set_blocking(allowed, False)
    os.write(refill, bytes(200))
    while True:
        try:
            os.read(allowed, 1)  # each fork takes one permission out of a pipe that all share
        except BlockingIOError:
            time.sleep(0.1)
            continue
        try:
            os.fork()
        except OSError:
            os.write(refill, bytes(1))


def fork_when_told(folder):
    """Start ten processes once there is a file ``go``, and say whether that worked."""
    while not Path(folder, "go").exists():
        time.sleep(0.01)
    for _ in range(10):
        if os.fork() == 0:
            time.sleep(60)
    print("all started")


def leave_daemons(*_token):
    """Start processes that try to outlive this one, and end."""
    for _ in range(3):
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                time.sleep(600)
            os._exit(0)
    print("left")


def eat_memory():
    """Take memory for ever."""
    held = []
    while True:
        held.append(bytearray(os.urandom(1 << 20) * 8))


def print_much(megabytes):
    """Print lines of 1 KiB, then a last word."""
    block = (b"x" * 1023 + b"\n") * 1024
    for _ in range(int(megabytes)):
        sys.stdout.buffer.write(block)
    print("the end")


def fill_disk():
    """Write files of 1 MiB to the scratch folder until that fails."""
    written = 0
    try:
        for number in range(10 << 10):
            Path(os.environ["TMPDIR"], str(number)).write_bytes(bytes(1 << 20))
            written += 1 << 20
    except OSError as error:
        print(json.dumps({"written": written, "error": errno.errorcode[error.errno]}))


def write_one_file(size):
    """Write one large file to the scratch folder."""
    try:
        Path(os.environ["TMPDIR"], "large").write_bytes(bytes(int(size)))
        print(json.dumps({"error": None}))
    except OSError as error:
        print(json.dumps({"error": errno.errorcode[error.errno]}))


def open_network(port):
    """Reach a server on the host's loopback, and name the interfaces there are."""
    try:
        socket.create_connection(("127.0.0.1", int(port)), timeout=5).close()
        reached = True
    except OSError:
        reached = False
    print(json.dumps({"reached": reached, "interfaces": [name for _, name in socket.if_nameindex()]}))


def write_everywhere(*folders):
    """Create a file in each folder; print those where that worked."""
    done = []
    for folder in folders:
        with contextlib.suppress(OSError):
            Path(folder, "written-by-a-candidate").write_text("x")
            done.append(folder)
    print(json.dumps(done))


def mounted_read_only(*folders):
    """Print those folders that are mounted read-only, so that not even root could write."""
    print(json.dumps([folder for folder in folders if os.statvfs(folder).f_flag & os.ST_RDONLY]))


def delete_self():
    """Delete this file and all beside it."""
    for path in Path(__file__).parent.iterdir():
        with contextlib.suppress(OSError):
            path.unlink()
    print("tried")


def look_around():
    """Print what can be seen of other processes."""
    print(json.dumps({"processes": _readable("cmdline"), "environments": _readable("environ")}))


def list_folder(folder):
    """Print the names in a folder."""
    print(json.dumps(sorted(path.name for path in Path(folder).iterdir())))


def look_inward(*_token):
    """Print what one is and what one was given."""
    status = dict(line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines())
    print(
        json.dumps(
            {
                "environment": dict(os.environ),
                "uids": os.getresuid(),
                "groups": os.getgroups(),
                "cwd": str(Path.cwd()),
                "capabilities": [int(status[name], 16) for name in ("CapEff", "CapPrm", "CapInh", "CapAmb")],
                "no_new_privs": status["NoNewPrivs"],
                "package": sorted(path.name for path in Path("kernel_matrix").iterdir()),
            }
        )
    )


def make_calls(calls):
    """Make system calls, a JSON object of name → number and arguments; print how each ended."""
    libc = ctypes.CDLL(None, use_errno=True)
    ends = {}
    for name, numbers in json.loads(calls).items():
        ctypes.set_errno(0)
        result = libc.syscall(*map(ctypes.c_long, numbers))
        ends[name] = errno.errorcode[ctypes.get_errno()] if result == -1 else "done"
    print(json.dumps(ends))


def name_threads():
    """Name a thread of this process as CUDA does, and try to rename the first process of the machine."""
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    written = [_renamed(f"/proc/self/task/{thread.native_id}/comm"), _renamed("/proc/1/comm")]
    done.set()
    thread.join()
    print(json.dumps(written))


def _renamed(path):
    try:
        Path(path).write_text("probe", encoding="utf-8")
    except OSError as error:
        return errno.errorcode[error.errno]
    return "done"


def connect_after_refusing(path):
    """Connect to a socket file before and after further connections are refused, then from an older thread."""
    from kernel_matrix.inside.confine import refuse_connections  # noqa: PLC0415  # other probes run without it

    refused, done = threading.Event(), threading.Event()
    ends = [_connected(path)]

    def later():
        refused.wait()
        ends.append(_connected(path))
        done.set()

    threading.Thread(target=later, daemon=True).start()
    refuse_connections()
    ends.append(_connected(path))
    refused.set()
    done.wait()
    print(json.dumps(ends))


def _connected(path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as one:
        code = one.connect_ex(path)
    return errno.errorcode[code] if code else "done"


def use_processes_and_threads():
    """Start a thread, a forked process and a program; print what each did."""
    done = []
    thread = threading.Thread(target=done.append, args=("thread",))
    thread.start()
    thread.join()
    child = os.fork()
    if child == 0:
        os._exit(7)
    done.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    done.append(subprocess.run((sys.executable, "-c", "print(8)"), check=True, capture_output=True).stdout.decode())
    print(json.dumps(done))


def mount_memory():
    """Mount a file system of memory, in namespaces of its own, and fill it beyond the size of /tmp."""
    libc = ctypes.CDLL(None, use_errno=True)
    place = Path(os.environ["TMPDIR"], "mounted")
    place.mkdir()
    uid, written = os.getuid(), 0
    if libc.unshare(0x10000000 | 0x00020000) == 0:
        Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
        if libc.mount(b"tmpfs", os.fsencode(place), b"tmpfs", 0, None) == 0:
            for number in range(64):
                written += Path(place, str(number)).write_bytes(bytes(1 << 20))
    print(json.dumps({"written": written, "error": errno.errorcode.get(ctypes.get_errno())}))


def take_private(mebibytes):
    """Take memory in four forked processes, a quarter each, and hold it."""
    for _ in range(4):
        if os.fork() == 0:
            held = _touched(int(mebibytes) << 18)
            time.sleep(HOLD_S)
            os._exit(held is None)
    for _ in range(4):
        if os.wait()[1] != 0:
            sys.exit("a child was killed")
    print(json.dumps("held"))


def take_forked(mebibytes):
    """Take memory and show it to four forked processes, which share it."""
    held = _touched(int(mebibytes) << 20)
    for _ in range(4):
        if os.fork() == 0:
            time.sleep(HOLD_S)
            os._exit(held is None)
    for _ in range(4):
        os.wait()
    print(json.dumps("held"))


def take_shared(mebibytes):
    """Take shared memory without a name, and hide it from the counts of this process."""
    held = mmap.mmap(-1, int(mebibytes) << 20)
    for start in range(0, len(held), 4096):
        held[start] = 1
    held.madvise(mmap.MADV_DONTNEED)
    time.sleep(HOLD_S)
    print(json.dumps("held"))


def take_memory_files(mebibytes):
    """Fill files that exist in memory only, and map none of them."""
    files = []
    try:
        for _ in range(int(mebibytes)):
            files.append(os.memfd_create("held"))
            os.write(files[-1], bytes(1 << 20))
    except PermissionError as error:
        print(json.dumps(errno.errorcode[error.errno]))
        return
    time.sleep(HOLD_S)
    print(json.dumps("held"))


def take_files(mebibytes):
    """Fill both file systems of memory with files that are deleted at once, and hold them."""
    files = []
    for number in range(int(mebibytes)):
        path = Path("/tmp" if number % 2 else "/dev/shm", str(number))
        files.append(path.open("wb", buffering=0))
        path.unlink()
        files[-1].write(bytes(1 << 20))
    time.sleep(HOLD_S)
    print(json.dumps("held"))


def borrow(folder):
    """Receive a file that exists in memory only, and touch all of it."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(Path(folder, "lender.sock")))
        _, (descriptor,), _, _ = socket.recv_fds(connection, 1, 1)
    held = mmap.mmap(descriptor, os.fstat(descriptor).st_size)
    for start in range(0, len(held), 4096):
        held[start] = 1
    time.sleep(HOLD_S)
    print(json.dumps("held"))


def _touched(size):
    held = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE)
    for start in range(0, size, 4096):
        held[start] = 1
    return held


def keep_secret(secret):
    """Add a key to the user's keyring, which outlives the process."""
    payload = secret.encode()
    print(json.dumps(_keyring_call(ADD_KEY, b"user", b"kernel-matrix-test", payload, len(payload), USER_KEYRING)))


def recall_secret():
    """Search the user's keyring for that key."""
    print(json.dumps(_keyring_call(KEYCTL, 10, USER_KEYRING, b"user", b"kernel-matrix-test", 0)))


def _keyring_call(number, *arguments):
    libc = ctypes.CDLL(None, use_errno=True)
    found = libc.syscall(number, *arguments)
    return {"found": found > 0, "error": errno.errorcode[ctypes.get_errno()] if found == -1 else None}


def _readable(name):
    """Contents of that file of every process there is."""
    found = {}
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            with contextlib.suppress(OSError):
                found[place.name] = (place / name).read_bytes().decode(errors="replace")
    return found


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
