"""The lock: real processes and threads that want the same file."""

import json
import os
import signal
import stat
import subprocess
import sys
import threading

import pytest

from kernel_matrix.errors import GpuBusyError, InfrastructureError
from kernel_matrix.lease import locks
from kernel_matrix.lease.locks import LeaseWait, WaitCancelledError, lock_file, lock_folder, locked
from tests.pipes import read_line

PREAMBLE = """
import os, subprocess, sys, time
from pathlib import Path
from kernel_matrix.lease.locks import LeaseWait, lock_file, locked
folder = Path(sys.argv[1])
def lock(wait_s):
    return locked(lock_file(folder, "GPU-1"), LeaseWait("a device", limit_s=wait_s))
"""

HOLD_UNTIL_TOLD = """
with lock(5):
    if "child" in sys.argv:
        print(subprocess.Popen(("sleep", "60"), close_fds=False, stdout=subprocess.DEVNULL).pid, flush=True)
    print("held", flush=True)
    sys.stdin.read()
"""

FIGHT = """
sys.stdin.readline()
for _ in range(100):
    with lock(60):
        os.close(os.open(folder / "inside", os.O_CREAT | os.O_EXCL))  # fails when the other one is inside
        time.sleep(0.001)
        os.unlink(folder / "inside")
    time.sleep(0.001)
"""

FORK = """
reading, writing = os.pipe()
with lock(0):
    child = os.fork()
    if child == 0:
        os.close(writing)
        os.read(reading, 1)  # until the parent closes its end
        os._exit(0)
with lock(0):
    print("held again")
os.close(writing)
os.waitpid(child, 0)
"""


def start(program, *args):
    argv = (sys.executable, "-c", PREAMBLE + program, *map(str, args))
    return subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def lock(folder, *, wait_s=0.0, cancelled=lambda: False, uuid="GPU-1"):
    return locked(lock_file(folder, uuid), LeaseWait("GPU-1 (a GPU)", limit_s=wait_s, cancelled=cancelled))


def test_two_processes_are_never_both_inside_in_200_rounds(tmp_path):
    fighters = [start(FIGHT, tmp_path) for _ in range(2)]
    for fighter in fighters:
        fighter.stdin.write("go\n")
        fighter.stdin.flush()
    for fighter in fighters:
        fighter.communicate(timeout=60)
    assert [fighter.returncode for fighter in fighters] == [0, 0]


def test_two_threads_exclude_each_other_too(tmp_path):
    refused = []

    def second():
        try:
            with lock(tmp_path):
                pass
        except GpuBusyError as error:
            refused.append(error)

    with lock(tmp_path):
        thread = threading.Thread(target=second)
        thread.start()
        thread.join()
    assert len(refused) == 1


def test_held_device_is_busy_after_the_wait_and_names_holder(tmp_path):
    with start(HOLD_UNTIL_TOLD, tmp_path) as holder:
        assert read_line(holder) == "held\n"
        with pytest.raises(GpuBusyError) as caught, lock(tmp_path, wait_s=0.2):
            pytest.fail("two holders")
        holder.communicate("")
    assert caught.value.exit_code == 75
    assert caught.value.what.startswith("GPU-1 (a GPU) was not free within 0.2 s: another runner holds")
    assert f"{holder.pid} (python" in caught.value.what
    assert "gpu_wait_s" in caught.value.next_step


def test_waiting_ends_when_the_holder_leaves(tmp_path):
    with start(HOLD_UNTIL_TOLD, tmp_path) as holder:
        assert read_line(holder) == "held\n"
        asked = []

        def leave_once_somebody_waits():
            if not asked:
                holder.stdin.close()
            asked.append(True)
            return False

        with lock(tmp_path, wait_s=30, cancelled=leave_once_somebody_waits):
            pass
        holder.wait()
    assert asked


@pytest.mark.parametrize("child", [(), ("child",)], ids=["alone", "with a surviving child"])
def test_sigkill_frees_the_device(tmp_path, child):
    holder = start(HOLD_UNTIL_TOLD, tmp_path, *child)
    survivors = [int(read_line(holder)) for _ in child]
    assert read_line(holder) == "held\n"
    holder.kill()
    holder.communicate()
    try:
        with lock(tmp_path, wait_s=10):
            pass
    finally:
        for pid in survivors:
            os.kill(pid, signal.SIGKILL)


def test_a_forked_child_does_not_keep_the_device_after_release(tmp_path):
    with start(FORK, tmp_path) as parent:
        assert parent.communicate(timeout=60)[0] == "held again\n"


def test_the_wait_can_be_called_off(tmp_path):
    with lock(tmp_path), pytest.raises(WaitCancelledError), lock(tmp_path, wait_s=60, cancelled=lambda: True):
        pytest.fail("two holders")


@pytest.mark.parametrize("stop", [ValueError, KeyboardInterrupt])
def test_whatever_happens_inside_the_device_is_given_back(tmp_path, stop):
    with pytest.raises(stop), lock(tmp_path):
        raise stop
    with lock(tmp_path):
        pass


def test_the_lock_file_stays_and_names_nobody_after_release(tmp_path):
    with lock(tmp_path):
        (path,) = tmp_path.iterdir()
        told = json.loads(path.read_text())
        inode = path.stat().st_ino
    assert told["pid"] == os.getpid()
    assert path.name == "GPU-1.lock"
    assert (path.stat().st_ino, path.read_text()) == (inode, "")
    assert stat.S_IMODE(path.stat().st_mode) == 0o666  # other users lock the same file


def test_devices_do_not_stand_in_each_others_way(tmp_path):
    with lock(tmp_path), lock(tmp_path, uuid="../other"):
        assert sorted(path.name for path in tmp_path.iterdir()) == ["GPU-1.lock", "___other.lock"]


@pytest.mark.parametrize("trap", ["symlink", "pipe", "second name", "folder"])
def test_a_lock_file_that_is_something_else_is_refused(tmp_path, trap):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    folder = tmp_path / "locks"
    folder.mkdir()
    path = folder / "GPU-1.lock"
    {
        "symlink": lambda: path.symlink_to(victim),
        "pipe": lambda: os.mkfifo(path),
        "second name": lambda: path.hardlink_to(victim),
        "folder": path.mkdir,
    }[trap]()
    with pytest.raises(InfrastructureError, match="cannot be used"), lock(folder):
        pytest.fail("held")
    assert victim.read_text() == "precious"


def test_the_named_lock_folder_wins_and_is_made(tmp_path, monkeypatch):
    monkeypatch.setenv("KERNEL_MATRIX_LOCK_DIR", str(tmp_path / "a" / "locks"))
    assert lock_folder() == tmp_path / "a" / "locks"
    assert stat.S_IMODE(lock_folder().stat().st_mode) == 0o1777


def test_unusable_named_lock_folder_is_an_error(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("KERNEL_MATRIX_LOCK_DIR", str(tmp_path / "file"))
    with pytest.raises(InfrastructureError, match="file") as caught:
        lock_folder()
    assert "KERNEL_MATRIX_LOCK_DIR" in caught.value.next_step


def test_without_a_shared_folder_the_users_own_is_taken(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.delenv("KERNEL_MATRIX_LOCK_DIR", raising=False)
    monkeypatch.setattr(locks, "_SHARED_LOCKS", tmp_path / "file" / "below")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert lock_folder() == tmp_path / "kernel-matrix"
    assert stat.S_IMODE(lock_folder().stat().st_mode) == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's folder")
def test_another_users_private_folder_is_not_trusted(tmp_path, monkeypatch):
    monkeypatch.delenv("KERNEL_MATRIX_LOCK_DIR", raising=False)
    monkeypatch.setattr(locks, "_SHARED_LOCKS", tmp_path / "cpu.lock" / "below")
    (tmp_path / "cpu.lock").write_text("")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    (tmp_path / "kernel-matrix").mkdir()
    os.chown(tmp_path / "kernel-matrix", 65534, 65534)
    with pytest.raises(InfrastructureError, match="lock files"):
        lock_folder()
