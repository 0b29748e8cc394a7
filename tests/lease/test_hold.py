"""Holding a device from beginning to end: real processes, a simulated driver."""

import json
import os
import re
import signal
import subprocess

import pytest

from kernel_matrix.lease import LeaseTerms, hold
from kernel_matrix.platforms import Gpu
from tests.lease.conftest import end
from tests.lease.holding import Holder
from tests.pipes import read_line

CPU = {"platform": "cpu", "uuid": "cpu", "name": "a CPU"}


def cpu_hold(folder, **terms):
    return hold(Gpu(**CPU), LeaseTerms(wait_s=0, **terms), lock_dir=folder)


# A CPU.


def test_a_cpu_lease_tells_what_it_is(tmp_path):
    with cpu_hold(tmp_path) as lease, lease.session(processes=3):
        pass
    assert (lease.exclusive, lease.foreign_pids, lease.warnings, lease.lost) == ("not_applicable", (), (), "")
    assert "shared with everything" in lease.reason
    assert list(lease.snapshots) == []
    assert set(lease.before) == set(lease.after) == {"load_average", "frequency_mhz", "memory_used_bytes"}
    assert (lease.aftermath.processes_gone, lease.aftermath.memory_back) == (None, None)
    assert not lease.clocks.locked


@pytest.mark.parametrize("stop", [ValueError, KeyboardInterrupt])
def test_whatever_happens_inside_the_device_is_given_back(tmp_path, stop):
    with pytest.raises(stop), cpu_hold(tmp_path) as lease:
        raise stop
    assert lease.after
    with cpu_hold(tmp_path):
        pass


def test_leftovers_are_reaped_under_the_lock_and_reported(tmp_path):
    found = []

    def reap():
        found.append((tmp_path / "cpu.lock").read_text())
        return ["container km-1 of a runner that is gone"]

    with hold(Gpu(**CPU), LeaseTerms(wait_s=0), reap=reap, lock_dir=tmp_path) as lease:
        assert lease.warnings == ("container km-1 of a runner that is gone",)
    assert json.loads(found[0])["pid"] == os.getpid()


# A GPU.


def test_a_gpu_with_nobody_else_on_it_is_proven_ours(board, tmp_path, tenant):
    board.set()
    holder = Holder(tmp_path, board=board).reached()
    process = tenant()
    holder.tell("admit", process.pid)
    board.set({"compute": process.pid, "clock_sm": 1530})
    holder.tell("look", 2)
    board.set({"clock_sm": 1530})
    told = holder.end()
    assert (told["exclusive"], told["foreign"], told["lost"], told["warnings"]) == ("proven", [], "", [])
    assert re.fullmatch(r"no foreign process in \d+ snapshots, at most \d\.\d{3} s apart", told["reason"])
    own = [look[0] for look in told["looks"]]
    assert own[0] == own[-1] == []
    assert [process.pid] in own
    assert (told["before"]["sm_clock_mhz"], told["after"]["sm_clock_mhz"]) == (board.gpu["clock_sm"], 1530)
    assert (told["aftermath"]["processes_gone"], told["aftermath"]["memory_back"]) == (True, True)
    assert told["clocks"] == [False, "not_needed"]
    assert told["threads"] == ["MainThread"]


def test_nothing_is_set_on_the_gpu(board, tmp_path):
    board.set()
    Holder(tmp_path, board=board).reached().end()
    assert board.driver.log() == []


def test_own_process_listed_after_its_end_is_not_foreign(board, tmp_path, tenant):
    board.set()
    holder = Holder(tmp_path, board=board).reached()
    process = tenant()
    holder.tell("admit", process.pid)
    board.set({"compute": process.pid})
    holder.tell("look", 1)
    end(process)
    holder.tell("look", 1)
    board.set()
    told = holder.end()
    assert (told["exclusive"], told["foreign"]) == ("proven", [])


def test_the_runner_itself_on_the_gpu_is_not_foreign(board, tmp_path):
    board.set()
    holder = Holder(tmp_path, board=board).reached()
    board.set({"compute": holder.process.pid})
    holder.tell("look", 1)
    board.set()
    assert holder.end()["exclusive"] == "proven"


def test_two_runners_are_never_both_on_the_gpu_in_200_rounds(board, tmp_path):
    board.set()
    fighters = [board.driver.start(board.program + FIGHT.replace("LOCKS", str(tmp_path / "locks"))) for _ in range(2)]
    (tmp_path / "locks").mkdir()
    for fighter in fighters:
        fighter.stdin.write("go\n")
        fighter.stdin.flush()
    for fighter in fighters:
        fighter.communicate(timeout=120)
    assert [fighter.returncode for fighter in fighters] == [0, 0]


FIGHT = """
import os, sys
from pathlib import Path
from kernel_matrix.lease import LeaseTerms, hold
folder = Path("LOCKS")
sys.stdin.readline()
for _ in range(100):
    with hold(gpu, LeaseTerms(wait_s=100), lock_dir=folder) as lease:
        os.close(os.open(folder / "inside", os.O_CREAT | os.O_EXCL))  # fails when the other one is inside
        os.unlink(folder / "inside")
    assert lease.exclusive == "proven", lease.reason
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_holder_that_is_killed_leaves_the_gpu_free(board, tmp_path, number):
    board.set()
    holder = Holder(tmp_path, board=board).reached()
    holder.tell("look", 1)
    holder.process.send_signal(number)
    holder.process.communicate()
    assert Holder(tmp_path, board=board, wait_s=10).reached().end()["exclusive"] == "proven"


# Drivers that fall silent.


def test_a_gpu_lost_before_is_an_error(board, tmp_path):
    board.set({"lost": board.lost})
    told = Holder(tmp_path, board=board).end()
    assert (told["error"], told["code"]) == ("GpuLostError", 4)
    assert "`dmesg`" in told["next_step"]


def test_a_gpu_lost_during_leaves_a_lease_that_tells_it(board, tmp_path):
    board.set()
    holder = Holder(tmp_path, board=board).reached()
    board.set({"lost": board.lost})
    holder.tell("look", 1000)  # no more than one will come
    told = holder.end()
    assert (told["exclusive"], told["after"]) == ("unproven", {})
    assert board.uuid in told["lost"]
    assert told["lost"] in told["reason"]
    assert (told["aftermath"]["processes_gone"], told["aftermath"]["memory_back"]) == (None, None)
    assert "no snapshot after" in told["warnings"][0]
    assert [bool(look[2]) for look in told["looks"]].count(True) == 1
    assert Holder(tmp_path, board=board).end()["error"] == "GpuLostError"  # the lock is free


def test_a_driver_that_stumbles_is_told_and_looked_at_again(board, tmp_path):
    board.set()
    holder = Holder(tmp_path, board=board).reached()
    board.set({"compute": board.refused})
    holder.tell("look", 1)
    board.set()
    holder.tell("look", 1)
    told = holder.end()
    troubles = [look[2] for look in told["looks"]]
    assert any(troubles)
    assert not troubles[-1]
    assert (told["exclusive"], told["lost"]) == ("proven", "")


def test_without_a_last_look_nothing_is_proven(board, tmp_path):
    board.set()
    holder = Holder(tmp_path, board=board, patience_s=0.1).reached()
    board.set({"compute": board.refused})
    holder.tell("look", 1)
    told = holder.end()
    assert told["exclusive"] == "unproven"
    assert "the last snapshot failed" in told["reason"]
    assert told["aftermath"]["processes_gone"] is None


def test_gap_of_a_second_between_snapshots_proves_nothing(board, tmp_path):
    board.set()
    holder = Holder(tmp_path, board=board).reached()
    holder.tell("look", 1)
    holder.process.send_signal(signal.SIGSTOP)
    await_stopped(holder.process.pid)
    holder.process.send_signal(signal.SIGCONT)
    holder.tell("look", 1)
    told = holder.end()
    assert told["exclusive"] == "unproven"
    assert re.search(r"no snapshot was taken for \d\.\d s", told["reason"])


def await_stopped(pid):
    """Stopped for longer than may go unnoticed: the one wait here that only time can end."""
    os.waitid(os.P_PID, pid, os.WSTOPPED)
    subprocess.run(("sleep", "1.1"), check=True)


# Clocks and hard mode: given back whatever happens.


@pytest.mark.parametrize("stop", ["ValueError", "KeyboardInterrupt"])
def test_clocks_are_given_back_whatever_happens_inside(board, tmp_path, stop):
    board.set()
    holder = Holder(tmp_path, board=board, clocks="lock", clock_target=1500).reached()
    told = holder.stop_by(stop)
    assert told["stopped"] == stop
    assert told["clocks"] == [True, "confirmed"]
    assert (told["exclusive"], told["threads"]) == ("proven", ["MainThread"])
    assert not list(tmp_path.glob("*.json"))
    Holder(tmp_path, board=board).reached().end()


INTERRUPTED = """
import os, signal, threading, traceback
from kernel_matrix.model.enums import ClockPolicy
from kernel_matrix.lease import LeaseTerms, hold

def interrupt(number, frame):
    # Asked again and again, until the wait that the test is about has begun.
    if not any(entry.name == "await_aftermath" for entry in traceback.extract_stack(frame)):
        signal.setitimer(signal.ITIMER_REAL, 0.005)
        return
    raise KeyboardInterrupt

signal.signal(signal.SIGALRM, interrupt)
try:
    with hold(gpu, LeaseTerms(wait_s=0, clocks=ClockPolicy.LOCK, clock_target=1500)) as lease:
        print("held", flush=True)
        input()
        signal.setitimer(signal.ITIMER_REAL, 0.005)
except KeyboardInterrupt:
    print(json.dumps([lease.aftermath.reason, lease.clocks.reset.value, len(lease.after), threading.active_count()]))
"""


def test_clocks_are_reset_when_the_release_check_is_stopped(board, tmp_path):
    board.set()
    board.driver.environment["KERNEL_MATRIX_LOCK_DIR"] = str(tmp_path)
    with board.driver.start(board.program + INTERRUPTED) as holder:
        assert read_line(holder) == "held\n"
        assert board.driver.state(board.uuid).sm_locked
        board.set({"memory_used": 9 << 30})  # and does not come back
        out, _ = holder.communicate("go on\n", timeout=60)
    reason, reset, after, threads = json.loads(out)
    assert reason == "the device is still held"
    assert (reset, threads) == ("confirmed", 1)
    assert after
    assert board.driver.state(board.uuid).sm_locked is None
    assert not list(tmp_path.glob("*.json"))
    Holder(tmp_path, board=board).reached().end()


def test_hard_mode_lasts_while_a_whole_session_runs(nvidia, tmp_path, tenant):
    board = nvidia
    board.set()
    holder = Holder(tmp_path, board=board, hard_exclusive=True).reached()
    for session in range(2):
        pids = [tenant().pid for _ in range(3)]
        holder.tell("enter")
        for pid in pids:
            holder.tell("admit", pid)
        holder.tell("look", 1)
        assert len(board.driver.log()) == 2 * session  # three of the session before are none of this one
        board.set({"compute": f"{pids[0]} {pids[1]}"})
        holder.tell("look", 1)
        assert len(board.driver.log()) == 2 * session  # two of three are no whole session
        board.set({"compute": " ".join(map(str, pids))})
        holder.tell("look", 1)
        assert len(board.driver.log()) == 2 * session + 1
        holder.tell("leave")  # and the driver still lists them when the next session begins
    board.set()
    told = holder.end()
    assert told["warnings"] == []
    modes = re.findall(r"nvmlDeviceSetComputeMode \S+ (\d)", "\n".join(board.driver.log()))
    assert modes == ["3", "0", "3", "0"]


def test_hard_mode_that_is_not_permitted_is_a_warning(board, tmp_path, tenant):
    board.set({"unprivileged": 1})
    holder = Holder(tmp_path, board=board, hard_exclusive=True).reached()
    pids = [tenant().pid for _ in range(3)]
    for pid in pids:
        holder.tell("admit", pid)
    holder.tell("enter")
    board.set({"unprivileged": 1, "compute": " ".join(map(str, pids))})
    holder.tell("look", 2)
    holder.tell("leave")
    board.set({"unprivileged": 1})
    told = holder.end()
    assert told["warnings"][0].startswith("hard mode: ")
