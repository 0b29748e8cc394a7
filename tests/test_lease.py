"""The lease: real locks between real processes; foreign processes on a simulated driver."""

import json
import os
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from sim.nvml import H200

from runner import lease as lease_module
from runner.errors import GpuBusyError, InfrastructureError
from runner.gpus import Gpu
from runner.lease import WaitCancelledError, hold, lock_folder

CPU = Gpu(vendor="cpu", uuid="cpu", name="a CPU")
UUID = H200["uuid"]


def hold_cpu(lock_dir, *, wait_s=0.0, cancelled=lambda: False):
    return hold(CPU, wait_s=wait_s, exclusive=True, own_pids=set, lock_dir=lock_dir, cancelled=cancelled)


def start(program, *args):
    return subprocess.Popen(
        (sys.executable, "-c", PREAMBLE + program, *map(str, args)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


PREAMBLE = """
import os, subprocess, sys, time
from pathlib import Path
from runner.gpus import Gpu
from runner.lease import hold
folder = Path(sys.argv[1])
def hold_cpu(wait_s):
    gpu = Gpu(vendor="cpu", uuid="cpu", name="a CPU")
    return hold(gpu, wait_s=wait_s, exclusive=True, own_pids=set, lock_dir=folder)
"""

HOLD_UNTIL_TOLD = """
with hold_cpu(5):
    if "child" in sys.argv:
        print(subprocess.Popen(("sleep", "60"), close_fds=False, stdout=subprocess.DEVNULL).pid, flush=True)
    print("held", flush=True)
    sys.stdin.read()
"""

FIGHT = """
sys.stdin.readline()
for _ in range(100):
    with hold_cpu(60):
        os.close(os.open(folder / "inside", os.O_CREAT | os.O_EXCL))  # fails when the other one is inside
        time.sleep(0.001)
        os.unlink(folder / "inside")
    time.sleep(0.001)
"""

FORK = """
reading, writing = os.pipe()
with hold_cpu(0):
    child = os.fork()
    if child == 0:
        os.close(writing)
        os.read(reading, 1)  # until the parent closes its end
        os._exit(0)
with hold_cpu(0):
    print("held again")
os.close(writing)
os.waitpid(child, 0)
"""


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
            with hold_cpu(tmp_path):
                pass
        except GpuBusyError as error:
            refused.append(error)

    with hold_cpu(tmp_path):
        thread = threading.Thread(target=second)
        thread.start()
        thread.join()
    assert len(refused) == 1


def test_a_held_device_is_busy_after_the_wait_and_the_message_names_the_holder(tmp_path):
    with start(HOLD_UNTIL_TOLD, tmp_path) as holder:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(GpuBusyError) as caught, hold_cpu(tmp_path, wait_s=0.2):
            pytest.fail("two holders")
        holder.communicate("")
    assert caught.value.exit_code == 75
    assert f"{holder.pid} (python" in caught.value.what
    assert "within 0.2 s" in caught.value.what
    assert "gpu_wait_s" in caught.value.next_step


def test_waiting_ends_when_the_holder_leaves(tmp_path):
    with start(HOLD_UNTIL_TOLD, tmp_path) as holder:
        assert holder.stdout.readline() == "held\n"
        asked = []

        def leave_once_somebody_waits():
            if not asked:
                holder.stdin.close()
            asked.append(True)
            return False

        with hold_cpu(tmp_path, wait_s=30, cancelled=leave_once_somebody_waits) as lease:
            assert lease.waited_s > 0
        holder.wait()
    assert asked


@pytest.mark.parametrize("child", [(), ("child",)], ids=["alone", "with a surviving child"])
def test_sigkill_frees_the_device(tmp_path, child):
    holder = start(HOLD_UNTIL_TOLD, tmp_path, *child)
    survivors = [int(holder.stdout.readline()) for _ in child]
    assert holder.stdout.readline() == "held\n"
    holder.kill()
    holder.communicate()
    try:
        with hold_cpu(tmp_path, wait_s=10):
            pass
    finally:
        for pid in survivors:
            os.kill(pid, signal.SIGKILL)


def test_a_forked_child_does_not_keep_the_device_after_release(tmp_path):
    with start(FORK, tmp_path) as parent:
        assert parent.communicate(timeout=60)[0] == "held again\n"


def test_the_wait_can_be_called_off(tmp_path):
    with hold_cpu(tmp_path), pytest.raises(WaitCancelledError), hold_cpu(tmp_path, wait_s=60, cancelled=lambda: True):
        pytest.fail("two holders")


@pytest.mark.parametrize("stop", [ValueError, KeyboardInterrupt])
def test_whatever_happens_inside_the_device_is_given_back(tmp_path, stop):
    with pytest.raises(stop), hold_cpu(tmp_path) as lease:
        raise stop
    assert lease.after
    with hold_cpu(tmp_path):
        pass


def test_the_lock_file_stays_and_names_nobody_after_release(tmp_path):
    with hold_cpu(tmp_path):
        (path,) = tmp_path.iterdir()
        told = json.loads(path.read_text())
        inode = path.stat().st_ino
    assert told["pid"] == os.getpid()
    assert path.name == "cpu.lock"
    assert (path.stat().st_ino, path.read_text()) == (inode, "")
    assert stat.S_IMODE(path.stat().st_mode) == 0o666  # other users lock the same file


def test_devices_do_not_stand_in_each_others_way(tmp_path):
    with (
        hold_cpu(tmp_path),
        hold(
            Gpu(vendor="cpu", uuid="../other", name="another"),
            wait_s=0,
            exclusive=True,
            own_pids=set,
            lock_dir=tmp_path,
        ),
    ):
        assert sorted(path.name for path in tmp_path.iterdir()) == ["___other.lock", "cpu.lock"]


def test_a_cpu_lease_tells_what_it_is(tmp_path):
    with hold_cpu(tmp_path) as lease:
        assert lease.check() == ()
    assert (lease.exclusive, lease.foreign_pids, lease.warnings) == ("not_applicable", (), ())
    assert "shared with everything" in lease.reason
    assert set(lease.before) == set(lease.after) == {"load_average", "frequency_mhz", "memory_used_bytes"}
    assert lease.clock_state("lock")[0] == "not_applicable"


@pytest.mark.parametrize("trap", ["symlink", "pipe", "second name", "folder"])
def test_a_lock_file_that_is_something_else_is_refused(tmp_path, trap):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    locks = tmp_path / "locks"
    locks.mkdir()
    path = locks / "cpu.lock"
    {
        "symlink": lambda: path.symlink_to(victim),
        "pipe": lambda: os.mkfifo(path),
        "second name": lambda: path.hardlink_to(victim),
        "folder": path.mkdir,
    }[trap]()
    with pytest.raises(InfrastructureError, match="cannot be used"), hold_cpu(locks):
        pytest.fail("held")
    assert victim.read_text() == "precious"


def test_the_named_lock_folder_wins_and_is_made(tmp_path, monkeypatch):
    monkeypatch.setenv("KERNEL_MATRIX_LOCK_DIR", str(tmp_path / "a" / "locks"))
    assert lock_folder() == tmp_path / "a" / "locks"
    assert stat.S_IMODE(lock_folder().stat().st_mode) == 0o1777


def test_a_named_lock_folder_that_cannot_be_used_is_an_error_and_no_fallback(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("KERNEL_MATRIX_LOCK_DIR", str(tmp_path / "file"))
    with pytest.raises(InfrastructureError, match="file") as caught:
        lock_folder()
    assert "KERNEL_MATRIX_LOCK_DIR" in caught.value.next_step


def test_without_a_shared_folder_the_users_own_is_taken(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.delenv("KERNEL_MATRIX_LOCK_DIR", raising=False)
    monkeypatch.setattr(lease_module, "_SHARED_LOCKS", tmp_path / "file" / "below")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert lock_folder() == tmp_path / "kernel-matrix"
    assert stat.S_IMODE(lock_folder().stat().st_mode) == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's folder")
def test_another_users_private_folder_is_not_trusted(tmp_path, monkeypatch):
    monkeypatch.delenv("KERNEL_MATRIX_LOCK_DIR", raising=False)
    monkeypatch.setattr(lease_module, "_SHARED_LOCKS", tmp_path / "cpu.lock" / "below")
    (tmp_path / "cpu.lock").write_text("")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    (tmp_path / "kernel-matrix").mkdir()
    os.chown(tmp_path / "kernel-matrix", 65534, 65534)
    with pytest.raises(InfrastructureError, match="lock files"):
        lock_folder()


# On a GPU. `LEASE` runs in a process of its own that loads the simulated driver; it obeys one command per line.

LEASE = """
import json, sys
from pathlib import Path
from runner.errors import KernelMatrixError
from runner.gpus import Gpu
from runner.lease import hold

settings = json.loads(sys.stdin.readline())
own = set(settings["own"])
gpu = Gpu(vendor="nvidia", uuid=settings["uuid"], name="NVIDIA H200")
told = {"checks": []}
waits = []

def waiting():
    if not waits:
        print("waiting", flush=True)
    waits.append(True)
    return False

def obey(lease):
    print("held", flush=True)
    for line in sys.stdin:
        word, *pids = line.split()
        own.update(map(int, pids)) if word == "own" else told["checks"].append(lease.check())
        print("done", flush=True)

try:
    with hold(gpu, wait_s=settings["wait_s"], exclusive=settings["exclusive"], own_pids=lambda: tuple(own),
              lock_dir=Path(settings["locks"]), cancelled=waiting) as lease:
        obey(lease)
    told.update(
        exclusive=lease.exclusive, reason=lease.reason, foreign=lease.foreign_pids, warnings=lease.warnings,
        before=dict(lease.before), after=dict(lease.after), clocks=[lease.clock_state(p) for p in ("observe", "lock")],
    )
except KernelMatrixError as error:
    told.update(error=type(error).__name__, what=error.what, next_step=error.next_step, code=error.exit_code)
print(json.dumps(told))
"""


class Runner:
    """A process that holds the simulated GPU."""

    def __init__(self, driver, locks, *, own=(), wait_s=0.0, exclusive=True, prefix=()):
        self._process = subprocess.Popen(
            (*prefix, sys.executable, "-c", LEASE),
            env=driver.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._say({"uuid": UUID, "own": list(own), "wait_s": wait_s, "exclusive": exclusive, "locks": str(locks)})

    def _say(self, settings):
        self._process.stdin.write(json.dumps(settings) + "\n")
        self._process.stdin.flush()

    def reached(self, state):
        assert self._process.stdout.readline() == state + "\n"
        return self

    def obey(self, *words):
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "done\n"

    def end(self):
        out, _ = self._process.communicate(timeout=60)
        assert self._process.returncode == 0
        return json.loads(out.splitlines()[-1])


def test_a_gpu_with_nobody_else_on_it_is_proven_ours(driver, tmp_path):
    driver.set(H200)
    runner = Runner(driver, tmp_path).reached("held")
    runner.obey("own", 4242)
    driver.set({**H200, "compute": "4242", "clock_sm": 1530})
    runner.obey("check")
    told = runner.end()
    assert (told["exclusive"], told["foreign"], told["checks"]) == ("proven", [], [[]])
    assert told["reason"] == "no foreign process in 3 looks"
    assert (told["before"]["sm_clock_mhz"], told["after"]["sm_clock_mhz"]) == (1980, 1530)
    assert told["clocks"][0] == ["unlocked", "policy observe: nothing was changed"]
    assert told["clocks"][1][0] == "unlocked"
    assert "not part of this version" in told["clocks"][1][1]


def test_a_process_of_ours_that_is_listed_after_its_end_is_not_foreign(driver, tmp_path):
    program = """
from pathlib import Path
import json, sys
from runner.gpus import Gpu
from runner.lease import hold
alive = {4242}
with hold(Gpu(vendor="nvidia", uuid=sys.argv[1], name=""), wait_s=0, exclusive=True, own_pids=lambda: alive,
          lock_dir=Path(sys.argv[2])) as lease:
    lease.check()
    alive.clear()
print(json.dumps([lease.exclusive, lease.foreign_pids]))
"""
    driver.set({**H200, "compute": "4242"})
    done = subprocess.run(
        (sys.executable, "-c", program, UUID, tmp_path), env=driver.environment, capture_output=True, check=True
    )
    assert json.loads(done.stdout) == ["proven", []]


@pytest.mark.parametrize("kind", ["compute", "graphics", "mps"])
def test_a_foreign_process_makes_the_gpu_busy_and_is_named(driver, tmp_path, kind):
    driver.set({**H200, kind: f"{os.getpid()} 4194304"})
    told = Runner(driver, tmp_path, wait_s=0.1).end()
    assert (told["error"], told["code"]) == ("GpuBusyError", 75)
    name = Path("/proc/self/comm").read_text().strip()
    assert f"{os.getpid()} ({name}), 4194304 (name not readable)" in told["what"]
    assert UUID in told["what"]


def test_waiting_ends_when_the_foreign_process_goes(driver, tmp_path):
    driver.set({**H200, "compute": "77"})
    runner = Runner(driver, tmp_path, wait_s=60).reached("waiting")
    driver.set(H200)
    told = runner.reached("held").end()
    assert (told["exclusive"], told["foreign"]) == ("proven", [])


@pytest.mark.parametrize("kind", ["compute", "graphics", "mps"])
def test_a_foreign_process_that_comes_is_seen_by_a_check(driver, tmp_path, kind):
    driver.set(H200)
    runner = Runner(driver, tmp_path, own=[4242]).reached("held")
    driver.set({**H200, "compute": "4242", kind: "4242 77 66"})
    runner.obey("check")
    driver.set(H200)
    runner.obey("check")
    told = runner.end()
    assert told["checks"] == [[66, 77], []]
    assert (told["exclusive"], told["foreign"]) == ("unproven", [66, 77])
    assert "77 (" in told["reason"]


def test_a_foreign_process_that_comes_is_seen_at_the_end_without_a_check(driver, tmp_path):
    driver.set(H200)
    runner = Runner(driver, tmp_path).reached("held")
    driver.set({**H200, "graphics": "77"})
    told = runner.end()
    assert (told["exclusive"], told["foreign"]) == ("unproven", [77])


def test_where_company_is_allowed_it_is_seen_and_nothing_is_claimed(driver, tmp_path):
    driver.set({**H200, "compute": "77"})
    told = Runner(driver, tmp_path, exclusive=False).reached("held").end()
    assert (told["exclusive"], told["foreign"]) == ("unproven", [77])
    assert "policy exclusive = false" in told["reason"]


def test_a_gpu_lost_before_is_an_error(driver, tmp_path):
    driver.set({**H200, "lost": "!15"})
    told = Runner(driver, tmp_path).end()
    assert (told["error"], told["code"]) == ("InfrastructureError", 4)
    assert "fell off the bus" in told["next_step"]


def test_a_gpu_lost_during_leaves_a_lease_that_tells_it(driver, tmp_path):
    driver.set(H200)
    runner = Runner(driver, tmp_path).reached("held")
    driver.set({**H200, "lost": "!15"})
    runner.obey("check")
    told = runner.end()
    assert (told["exclusive"], told["after"]) == ("unproven", {})
    assert "GPU is lost" in told["reason"]
    assert "no snapshot after" in told["warnings"][0]


def can_unshare():
    probe = ("unshare", "--pid", "--fork", "--mount-proc", "true")
    return subprocess.run(probe, check=False, capture_output=True).returncode == 0


@pytest.mark.skipif(not can_unshare(), reason="this user may not make a PID namespace")
def test_inside_a_pid_namespace_nothing_is_proven_and_nobody_is_accused(driver, tmp_path):
    driver.set({**H200, "compute": "77"})
    namespace = ("unshare", "--pid", "--fork", "--mount-proc")
    told = Runner(driver, tmp_path, prefix=namespace).reached("held").end()
    assert (told["exclusive"], told["foreign"]) == ("unproven", [])
    assert "PID namespace" in told["reason"]
