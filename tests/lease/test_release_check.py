"""How a simulated GPU is left: what lingers is waited for, and told."""

import pytest
from sim.nvml import H200

from tests.lease.holding import Holder

MIB = 1 << 20


@pytest.fixture
def holder(driver, tmp_path, tenant):
    """Holds a GPU on which one process of ours runs, and has memory."""

    def make(**options):
        driver.set(H200)
        held = Holder(tmp_path, driver=driver, **options).reached()
        held.ours = tenant().pid
        held.tell("admit", held.ours)
        driver.set(with_ours(held))
        held.tell("look", 1)
        return held

    return make


def with_ours(holder, **changes):
    return {**H200, "compute": holder.ours, "memory_used": H200["memory_used"] + 900 * MIB, **changes}


def left(told):
    return told["aftermath"]["processes_gone"], told["aftermath"]["memory_back"]


@pytest.mark.parametrize("used", [H200["memory_used"], 900 * MIB], ids=["without memory", "with memory"])
def test_a_process_that_the_driver_still_lists_is_waited_for(driver, holder, used):
    held = holder(patience_s=60)
    driver.set(with_ours(held, memory_used=used))
    held.let_go()
    driver.set(H200)
    told = held.end()
    assert left(told) == (True, True)
    assert told["aftermath"]["reason"] == "none of our processes is listed; 1 MiB in use, 1 MiB before"
    assert told["exclusive"] == "proven"


def test_memory_that_comes_back_late_is_waited_for(driver):
    driver.set({**H200, "memory_used": MIB})
    gone, back, used = driver.ask(CLEARING)
    assert (gone, back) == (True, True)
    assert used[0] == 900 * MIB
    assert used[-1] == 65 * MIB


CLEARING = f"""
import json
from kernel_matrix.platforms import Gpu
from kernel_matrix.platforms.registry import get_platform
from kernel_matrix.lease.release_check import await_aftermath
from kernel_matrix.lease.kept_processes import KeptProcesses
from kernel_matrix.lease.gpu_processes import OwnProcesses
from kernel_matrix.lease.watch import DeviceWatch
from tests.sim.nvml import World
uuid, used = {H200["uuid"]!r}, []

class Clearing(DeviceWatch):
    def take_now(self):
        look = super().take_now()
        used.append(look.sample.memory_used_bytes)
        World.here().change(uuid, memory_used={65 * MIB})
        return look

with get_platform("cuda").opened():
    watch = Clearing(Gpu(platform="cuda", uuid=uuid, name=""), OwnProcesses(), period_s=3600)
    watch.begin()
    World.here().change(uuid, memory_used={900 * MIB})
    with watch.running():
        told = await_aftermath(watch, KeptProcesses())
print(json.dumps([told.processes_gone, told.memory_back, used]))
"""


def test_a_process_that_stays_is_told(holder):
    held = holder(patience_s=0.1)
    told = held.end()
    assert left(told) == (False, False)
    assert f"still listed: {held.ours} (sleep); 901 MiB in use, 1 MiB before" in told["aftermath"]["reason"]


def test_memory_that_stays_is_told(driver, holder):
    held = holder(patience_s=0.1)
    driver.set(with_ours(held, compute="", memory_used=H200["memory_used"] + 65 * MIB))
    told = held.end()
    assert left(told) == (True, False)
    assert told["aftermath"]["reason"].endswith("66 MiB in use, 1 MiB before")


def test_memory_is_unknown_with_foreign_processes(driver, holder):
    held = holder(patience_s=60)
    driver.set(with_ours(held, compute="1"))
    told = held.end()
    assert left(told) == (True, None)
    assert "none of our processes is listed; foreign: 1 (" in told["aftermath"]["reason"]


def test_memory_is_unknown_if_it_was_suspicious_before(driver, tmp_path):
    driver.set({**H200, "memory_used": 3000 * MIB})
    held = Holder(tmp_path, driver=driver, patience_s=0.1).reached()
    driver.set({**H200, "memory_used": 5000 * MIB})
    assert left(held.end()) == (True, None)


def test_release_check_does_not_wait_for_unknown_memory(driver, tmp_path):
    mute = {key: value for key, value in H200.items() if not key.startswith("memory_used")}
    driver.set(mute)
    told = Holder(tmp_path, driver=driver, patience_s=60).reached().end()
    assert left(told) == (True, None)
    assert "does not say how much memory" in told["aftermath"]["reason"]


def test_a_gpu_lost_meanwhile_tells_nothing(driver, holder):
    held = holder(patience_s=60)
    held.let_go()
    driver.set({**H200, "lost": "!15"})
    told = held.end()
    assert left(told) == (None, None)
    assert told["lost"] in told["aftermath"]["reason"]


def test_a_driver_that_stumbles_meanwhile_is_asked_again(driver, holder):
    held = holder(patience_s=60)
    held.let_go()
    driver.set({**H200, "compute": "!4"})
    driver.set(H200)
    assert left(held.end()) == (True, True)
