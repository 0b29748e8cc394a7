"""Becoming alone on a simulated GPU: real processes wait for others, or are refused."""

import os
from pathlib import Path

import pytest

from tests.lease.conftest import IN_A_NAMESPACE, needs_namespaces
from tests.lease.holding import Holder

ABSENT = 4_194_304  # one more than the kernel ever gives


@pytest.mark.parametrize("kind", ["compute", "graphics"])
def test_a_foreign_process_makes_the_gpu_busy_and_is_named(board, tmp_path, kind):
    board.needs_list(kind)
    board.set({kind: f"{os.getpid()} {ABSENT}"})
    told = Holder(tmp_path, board=board, wait_s=0.1).reached("waiting").end()
    assert (told["error"], told["code"]) == ("GpuBusyError", 75)
    name = Path("/proc/self/comm").read_text().strip()
    assert f"{os.getpid()} ({name}), {ABSENT} (name not readable)" in told["what"]
    assert board.uuid in told["what"]


def test_waiting_ends_when_the_foreign_process_goes(board, tmp_path):
    board.set({"compute": 1})
    holder = Holder(tmp_path, board=board, wait_s=60).reached("waiting")
    board.set()
    told = holder.reached().end()
    assert (told["exclusive"], told["foreign"]) == ("proven", [])
    assert told["waited_s"] > 0


def test_allowed_foreign_process_is_seen_and_nothing_claimed(board, tmp_path):
    board.set({"compute": 1})
    told = Holder(tmp_path, board=board, exclusive=False).reached().end()
    assert (told["exclusive"], told["foreign"]) == ("unproven", [1])
    assert "policy exclusive = false" in told["reason"]


def test_memory_in_use_by_nobody_is_suspicious(board, tmp_path):
    board.set({"memory_used": 3 << 30})
    told = Holder(tmp_path, board=board).reached().end()
    assert told["exclusive"] == "unproven"
    assert told["reason"] == "suspicious: 3072 MiB were in use with no process listed"
    assert told["aftermath"]["memory_back"] is True


def test_memory_of_those_who_have_just_left_is_waited_for(board):
    board.set({"memory_used": 3 << 30})
    doubts, used = board.driver.ask(board.program + SETTLING)
    assert (doubts, used) == ([], [3 << 30, 1 << 20])


SETTLING = """
from kernel_matrix.lease import LeaseTerms
from kernel_matrix.lease.exclusivity import await_exclusive
from kernel_matrix.lease.locks import LeaseWait
from kernel_matrix.lease.gpu_processes import OwnProcesses
from kernel_matrix.lease.watch import DeviceWatch
used = []

class Clearing(DeviceWatch):
    def begin(self):
        look = super().begin()
        used.append(look.sample.memory_used_bytes)
        World.here().change(gpu.uuid, memory_used=1 << 20)
        return look

with get_platform(gpu.platform).opened():
    watch = Clearing(gpu, OwnProcesses())
    print(json.dumps([await_exclusive(watch, LeaseTerms(wait_s=60), LeaseWait("a GPU", limit_s=60)), used]))
"""


def test_a_divided_gpu_is_refused_unless_it_is_allowed(board, tmp_path):
    board.set(board.divided)
    told = Holder(tmp_path, board=board).end()
    assert (told["error"], told["code"]) == ("GpuRefusedError", 4)
    assert "divided into parts" in told["what"]
    assert "policy.allow_mig" in told["next_step"]
    told = Holder(tmp_path, board=board, allow_mig=True).reached().end()
    assert told["exclusive"] == "unproven"
    assert "divided into parts" in told["reason"]


def test_mps_is_refused_unless_it_is_allowed(nvidia, tmp_path, tenant):
    board = nvidia
    (tmp_path / "nvidia-cuda-mps-server").symlink_to("/bin/sleep")
    server = tenant(str(tmp_path / "nvidia-cuda-mps-server"), "600")
    board.set({"compute": server.pid})
    told = Holder(tmp_path, board=board).end()
    assert (told["error"], "MPS server" in told["what"]) == ("GpuRefusedError", True)
    assert "policy.allow_mps" in told["next_step"]
    told = Holder(tmp_path, board=board, allow_mps=True).reached().end()
    assert (told["exclusive"], told["foreign"]) == ("unproven", [])
    assert "MPS server" in told["reason"]
    assert told["aftermath"]["processes_gone"] is True


@needs_namespaces
def test_inside_a_pid_namespace_proof_may_be_required(board, tmp_path):
    board.set({"compute": 77})
    told = Holder(tmp_path, board=board, prefix=IN_A_NAMESPACE, require_proof=True).end()
    assert told["error"] == "GpuRefusedError"
    assert "PID namespace" in told["what"]
    assert "--pid=host" in told["next_step"]


@needs_namespaces
def test_pid_namespace_proves_nothing_and_blames_no_process(board, tmp_path):
    board.set({"compute": 77})
    told = Holder(tmp_path, board=board, prefix=IN_A_NAMESPACE).reached().end()
    assert (told["exclusive"], told["foreign"]) == ("unproven", [])
    assert "PID namespace" in told["reason"]
    assert told["aftermath"]["processes_gone"] is None


@needs_namespaces
@pytest.mark.parametrize(
    ("sign", "words"), [({"memory_used": 4 << 30}, "4096 MiB of memory"), ({"utilization": "80 0"}, "80 % load")]
)
def test_inside_a_pid_namespace_signs_of_use_are_waited_for(board, tmp_path, sign, words):
    board.set(sign)
    told = Holder(tmp_path, board=board, prefix=IN_A_NAMESPACE, wait_s=0.2).end()
    assert told["error"] == "GpuBusyError"
    assert f"it seems to be in use: {words}" in told["what"]
    told = Holder(tmp_path, board=board, prefix=IN_A_NAMESPACE, wait_s=0.2, exclusive=False).reached().end()
    assert told["exclusive"] == "unproven"
