"""Becoming alone on a simulated GPU: real processes wait for others, or are refused."""

import os
from pathlib import Path

import pytest
from sim.nvml import H200

from tests.lease.conftest import IN_A_NAMESPACE, needs_namespaces
from tests.lease.holding import Holder

ABSENT = 4_194_304  # one more than the kernel ever gives


@pytest.mark.parametrize("kind", ["compute", "graphics"])
def test_a_foreign_process_makes_the_gpu_busy_and_is_named(driver, tmp_path, kind):
    driver.set({**H200, kind: f"{os.getpid()} {ABSENT}"})
    told = Holder(tmp_path, driver=driver, wait_s=0.1).reached("waiting").end()
    assert (told["error"], told["code"]) == ("GpuBusyError", 75)
    name = Path("/proc/self/comm").read_text().strip()
    assert f"{os.getpid()} ({name}), {ABSENT} (name not readable)" in told["what"]
    assert H200["uuid"] in told["what"]


def test_waiting_ends_when_the_foreign_process_goes(driver, tmp_path):
    driver.set({**H200, "compute": 1})
    holder = Holder(tmp_path, driver=driver, wait_s=60).reached("waiting")
    driver.set(H200)
    told = holder.reached().end()
    assert (told["exclusive"], told["foreign"]) == ("proven", [])
    assert told["waited_s"] > 0


def test_allowed_foreign_process_is_seen_and_nothing_claimed(driver, tmp_path):
    driver.set({**H200, "compute": 1})
    told = Holder(tmp_path, driver=driver, exclusive=False).reached().end()
    assert (told["exclusive"], told["foreign"]) == ("unproven", [1])
    assert "policy exclusive = false" in told["reason"]


def test_memory_in_use_by_nobody_is_suspicious(driver, tmp_path):
    driver.set({**H200, "memory_used": 3 << 30})
    told = Holder(tmp_path, driver=driver).reached().end()
    assert told["exclusive"] == "unproven"
    assert told["reason"] == "suspicious: 3072 MiB were in use with no process listed"
    assert told["aftermath"]["memory_back"] is True


def test_memory_of_those_who_have_just_left_is_waited_for(driver):
    driver.set({**H200, "memory_used": 3 << 30})
    doubts, used = driver.ask(SETTLING)
    assert (doubts, used) == ([], [3 << 30, 1 << 20])


SETTLING = f"""
import json
from kernel_matrix.platforms import Gpu
from kernel_matrix.platforms.registry import get_platform
from kernel_matrix.lease import LeaseTerms
from kernel_matrix.lease.exclusivity import await_exclusive
from kernel_matrix.lease.locks import LeaseWait
from kernel_matrix.lease.gpu_processes import OwnProcesses
from kernel_matrix.lease.watch import DeviceWatch
from tests.sim.nvml import World
uuid, used = {H200["uuid"]!r}, []

class Clearing(DeviceWatch):
    def begin(self):
        look = super().begin()
        used.append(look.sample.memory_used_bytes)
        World.here().change(uuid, memory_used={1 << 20})
        return look

with get_platform("cuda").opened():
    watch = Clearing(Gpu(platform="cuda", uuid=uuid, name=""), OwnProcesses())
    print(json.dumps([await_exclusive(watch, LeaseTerms(wait_s=60), LeaseWait("a GPU", limit_s=60)), used]))
"""


def test_mig_mode_is_refused_unless_it_is_allowed(driver, tmp_path):
    driver.set({**H200, "mig": "1 1"})
    told = Holder(tmp_path, driver=driver).end()
    assert (told["error"], told["code"]) == ("GpuRefusedError", 4)
    assert "MIG" in told["what"]
    assert "policy.allow_mig" in told["next_step"]
    told = Holder(tmp_path, driver=driver, allow_mig=True).reached().end()
    assert told["exclusive"] == "unproven"
    assert "MIG" in told["reason"]


def test_mps_is_refused_unless_it_is_allowed(driver, tmp_path, tenant):
    (tmp_path / "nvidia-cuda-mps-server").symlink_to("/bin/sleep")
    server = tenant(str(tmp_path / "nvidia-cuda-mps-server"), "600")
    driver.set({**H200, "compute": server.pid})
    told = Holder(tmp_path, driver=driver).end()
    assert (told["error"], "MPS server" in told["what"]) == ("GpuRefusedError", True)
    assert "policy.allow_mps" in told["next_step"]
    told = Holder(tmp_path, driver=driver, allow_mps=True).reached().end()
    assert (told["exclusive"], told["foreign"]) == ("unproven", [])
    assert "MPS server" in told["reason"]
    assert told["aftermath"]["processes_gone"] is True


@needs_namespaces
def test_inside_a_pid_namespace_proof_may_be_required(driver, tmp_path):
    driver.set({**H200, "compute": 77})
    told = Holder(tmp_path, driver=driver, prefix=IN_A_NAMESPACE, require_proof=True).end()
    assert told["error"] == "GpuRefusedError"
    assert "PID namespace" in told["what"]
    assert "--pid=host" in told["next_step"]


@needs_namespaces
def test_pid_namespace_proves_nothing_and_blames_no_process(driver, tmp_path):
    driver.set({**H200, "compute": 77})
    told = Holder(tmp_path, driver=driver, prefix=IN_A_NAMESPACE).reached().end()
    assert (told["exclusive"], told["foreign"]) == ("unproven", [])
    assert "PID namespace" in told["reason"]
    assert told["aftermath"]["processes_gone"] is None


@needs_namespaces
@pytest.mark.parametrize(
    ("sign", "words"), [({"memory_used": 4 << 30}, "4096 MiB of memory"), ({"utilization": "80 0"}, "80 % load")]
)
def test_inside_a_pid_namespace_signs_of_use_are_waited_for(driver, tmp_path, sign, words):
    driver.set({**H200, **sign})
    told = Holder(tmp_path, driver=driver, prefix=IN_A_NAMESPACE, wait_s=0.2).end()
    assert told["error"] == "GpuBusyError"
    assert f"it seems to be in use: {words}" in told["what"]
    told = Holder(tmp_path, driver=driver, prefix=IN_A_NAMESPACE, wait_s=0.2, exclusive=False).reached().end()
    assert told["exclusive"] == "unproven"
