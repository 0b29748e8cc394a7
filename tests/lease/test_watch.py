"""Looks at a simulated GPU, in the processes that hold it."""

import os
from pathlib import Path

import pytest

from tests.lease.conftest import end
from tests.lease.holding import Holder

PREAMBLE = """
import threading, time
from kernel_matrix.lease.gpu_processes import OwnProcesses
from kernel_matrix.lease.watch import DeviceWatch
library = get_platform(gpu.platform).opened()
library.__enter__()
def await_looks(count):
    while len(watch.snapshots) < count:
        time.sleep(0.002)
"""


@pytest.mark.parametrize("kind", ["compute", "graphics", "mps"])
def test_a_foreign_process_that_comes_and_goes_is_in_the_looks(board, tmp_path, tenant, kind):
    board.needs_list(kind)
    board.set()
    holder = Holder(tmp_path, board=board).reached()
    ours, stranger = tenant(), tenant()
    holder.tell("admit", ours.pid)
    board.set({"compute": ours.pid})
    holder.tell("look", 1)
    board.set({"compute": ours.pid, kind: f"{ours.pid} {stranger.pid}"})
    holder.tell("look", 1)
    board.set({"compute": ours.pid})
    end(stranger)
    holder.tell("look", 1)
    board.set()
    told = holder.end()
    foreign = [look[1] for look in told["looks"]]
    assert [stranger.pid] in foreign
    assert foreign[0] == foreign[-1] == []
    assert told["foreign"] == [stranger.pid]
    assert told["exclusive"] == "unproven"
    assert f"{stranger.pid} (sleep)" in told["reason"]


def test_each_of_many_visits_is_seen(board, tmp_path, tenant):
    """A stranger that stays for one look only, twenty times over."""
    board.set()
    holder = Holder(tmp_path, board=board).reached()
    strangers = [tenant() for _ in range(20)]
    for stranger in strangers:
        board.set({"compute": stranger.pid})
        holder.tell("look", 1)
        board.set()
    told = holder.end()
    assert told["foreign"] == sorted(stranger.pid for stranger in strangers)


def test_a_foreign_process_that_comes_at_the_very_end_is_seen(board, tmp_path):
    board.set()
    holder = Holder(tmp_path, board=board).reached()
    board.set({board.kinds[-1]: 1})
    told = holder.end()
    assert (told["exclusive"], told["foreign"]) == ("unproven", [1])


def test_looks_that_are_overdue_are_left_out(board):
    """Were they made up for, several would fall into one period."""
    board.set()
    times = board.driver.ask(
        board.program
        + PREAMBLE
        + """
watch = DeviceWatch(gpu, OwnProcesses(), period_s=0.02)
def stall(look):
    if len(watch.snapshots) == 3:
        time.sleep(0.3)
with watch.notifying(stall), watch.running():
    await_looks(12)
print(json.dumps([look.sample.at_ns for look in watch.snapshots]))
"""
    )
    assert len(times) >= 12
    # Each look begins in a later period than the one before, so two that follow one another span a whole one.
    assert all(after_next - one > 20_000_000 for one, after_next in zip(times, times[2:], strict=False))


def test_a_process_that_leaves_while_it_is_looked_at_is_nobody(board):
    """It was listed, and had ended when its name was asked for: the second list tells that it is not on the GPU."""
    board.set({"compute": "4194304"})
    looks = board.driver.ask(
        board.program
        + PREAMBLE
        + """
class Leaving(OwnProcesses):
    def owner_of(self, pid):
        if leaves:
            World.here().change(gpu.uuid, compute="")
        return super().owner_of(pid)
watch, looks = DeviceWatch(gpu, Leaving()), []
for leaves in (False, True):
    looks.append(watch.begin())
print(json.dumps([[look.sample.pids, look.own, look.foreign] for look in looks]))
"""
    )
    assert looks == [[[4194304], [], [4194304]], [[4194304], [], []]]


def test_process_admitted_during_a_snapshot_is_ours(board, tenant):
    process = tenant()
    board.set({"compute": process.pid})
    look = board.driver.ask(
        board.program
        + PREAMBLE
        + """
class Late(OwnProcesses):
    def owner_of(self, pid):
        found = super().owner_of(pid)
        self.admit(pid)
        return found
look = DeviceWatch(gpu, Late()).begin()
print(json.dumps([look.own, look.foreign]))
"""
    )
    assert look == [[process.pid], []]


def test_who_listens_is_told_of_every_look_until_he_leaves(board):
    board.set()
    heard, looks, after = board.driver.ask(
        board.program
        + PREAMBLE
        + """
watch, heard = DeviceWatch(gpu, OwnProcesses()), []
with watch.running():
    with watch.notifying(heard.append):
        await_looks(3)
    left = len(heard)
    await_looks(len(watch.snapshots) + 2)
print(json.dumps([left, len(watch.snapshots), len(heard)]))
"""
    )
    assert heard == after
    assert looks >= heard + 2 >= 4


def test_watch_ends_with_its_context_and_measures_its_cost(board):
    board.set()
    alive, cost, looks = board.driver.ask(
        board.program
        + PREAMBLE
        + """
watch = DeviceWatch(gpu, OwnProcesses(), period_s=3600)
with watch.running():
    await_looks(1)
print(json.dumps([threading.active_count(), watch.cpu_s, len(watch.snapshots)]))
"""
    )
    assert (alive, looks) == (1, 1)
    assert cost > 0


def test_a_watch_left_running_does_not_keep_the_interpreter(board):
    board.set()
    program = """
watch = DeviceWatch(gpu, OwnProcesses())
running = watch.running()
running.__enter__()
await_looks(1)
print(json.dumps("the end"))
"""
    assert board.driver.ask(board.program + PREAMBLE + program) == "the end"


def test_hung_driver_is_not_waited_for_forever(board, tmp_path):
    board.set()
    (tmp_path / "locks").mkdir()
    holder = Holder(tmp_path / "locks", board=board, patience_s=0.2).reached()
    holder.tell("look", 1)
    hang(board)
    holder.tell("lost")
    told = holder.end()
    assert "has not answered" in told["lost"]
    assert told["exclusive"] == "unproven"
    assert told["aftermath"]["processes_gone"] is None
    board.set()
    Holder(tmp_path / "locks", board=board).reached().end()


def hang(board):
    """Every question to the driver from now on waits for ever: its world is a pipe that nobody writes."""
    world = Path(board.driver.environment[board.world.VARIABLE])
    pipe = world.with_suffix(".pipe")
    os.mkfifo(pipe)
    pipe.replace(world)
