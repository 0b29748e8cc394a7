"""How a simulated GPU is left: what lingers is waited for, and told."""

import pytest

from tests.lease.holding import Holder

MIB = 1 << 20


@pytest.fixture
def holder(board, tmp_path, tenant):
    """Holds a GPU on which one process of ours runs, and has memory."""

    def make(**options):
        board.set()
        held = Holder(tmp_path, board=board, **options).reached()
        held.ours = tenant().pid
        held.tell("admit", held.ours)
        board.set(with_ours(board, held))
        held.tell("look", 1)
        return held

    return make


def with_ours(board, holder, **changes):
    return {"compute": holder.ours, "memory_used": board.gpu["memory_used"] + 900 * MIB, **changes}


def used(board):
    """MiB in use while nothing runs."""
    return board.gpu["memory_used"] // MIB


def left(told):
    return told["aftermath"]["processes_gone"], told["aftermath"]["memory_back"]


@pytest.mark.parametrize("more", [0, 900 * MIB], ids=["without memory", "with memory"])
def test_a_process_that_the_driver_still_lists_is_waited_for(board, holder, more):
    held = holder(patience_s=60)
    board.set(with_ours(board, held, memory_used=board.gpu["memory_used"] + more))
    held.let_go()
    board.set()
    told = held.end()
    assert left(told) == (True, True)
    assert (
        told["aftermath"]["reason"]
        == f"none of our processes is listed; {used(board)} MiB in use, {used(board)} MiB before"
    )
    assert told["exclusive"] == "proven"


def test_memory_that_comes_back_late_is_waited_for(board):
    board.set({"memory_used": MIB})
    gone, back, used = board.driver.ask(board.program + CLEARING)
    assert (gone, back) == (True, True)
    assert used[0] == 900 * MIB
    assert used[-1] == 65 * MIB


CLEARING = """
from kernel_matrix.lease.release_check import await_aftermath
from kernel_matrix.lease.kept_processes import KeptProcesses
from kernel_matrix.lease.gpu_processes import OwnProcesses
from kernel_matrix.lease.watch import DeviceWatch
used = []

class Clearing(DeviceWatch):
    def take_now(self):
        look = super().take_now()
        used.append(look.sample.memory_used_bytes)
        World.here().change(gpu.uuid, memory_used=65 << 20)
        return look

with get_platform(gpu.platform).opened():
    watch = Clearing(gpu, OwnProcesses(), period_s=3600)
    watch.begin()
    World.here().change(gpu.uuid, memory_used=900 << 20)
    with watch.running():
        told = await_aftermath(watch, KeptProcesses())
print(json.dumps([told.processes_gone, told.memory_back, used]))
"""


def test_a_process_that_stays_is_told(board, holder):
    held = holder(patience_s=0.1)
    told = held.end()
    assert left(told) == (False, False)
    memory = f"{used(board) + 900} MiB in use, {used(board)} MiB before"
    assert f"still listed: {held.ours} (sleep); {memory}" in told["aftermath"]["reason"]


def test_memory_that_stays_is_told(board, holder):
    held = holder(patience_s=0.1)
    board.set(with_ours(board, held, compute="", memory_used=board.gpu["memory_used"] + 65 * MIB))
    told = held.end()
    assert left(told) == (True, False)
    assert told["aftermath"]["reason"].endswith(f"{used(board) + 65} MiB in use, {used(board)} MiB before")


def test_memory_is_unknown_with_foreign_processes(board, holder):
    held = holder(patience_s=60)
    board.set(with_ours(board, held, compute="1"))
    told = held.end()
    assert left(told) == (True, None)
    assert "none of our processes is listed; foreign: 1 (" in told["aftermath"]["reason"]


def test_memory_is_unknown_if_it_was_suspicious_before(board, tmp_path):
    board.set({"memory_used": 3000 * MIB})
    held = Holder(tmp_path, board=board, patience_s=0.1).reached()
    board.set({"memory_used": 5000 * MIB})
    assert left(held.end()) == (True, None)


def test_release_check_does_not_wait_for_unknown_memory(board, tmp_path):
    board.set({"memory_used": None, "memory_reserved": None})
    told = Holder(tmp_path, board=board, patience_s=60).reached().end()
    assert left(told) == (True, None)
    assert "does not say how much memory" in told["aftermath"]["reason"]


def test_a_gpu_lost_meanwhile_tells_nothing(board, holder):
    held = holder(patience_s=60)
    held.let_go()
    board.set({"lost": board.lost})
    told = held.end()
    assert left(told) == (None, None)
    assert told["lost"] in told["aftermath"]["reason"]


def test_a_driver_that_stumbles_meanwhile_is_asked_again(board, holder):
    held = holder(patience_s=60)
    held.let_go()
    board.set({"compute": board.refused})
    board.set()
    assert left(held.end()) == (True, True)
