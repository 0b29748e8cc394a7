"""Problems of two ranks on two simulated GPUs, in real containers."""

from __future__ import annotations

import subprocess

import pytest

pytestmark = [
    pytest.mark.docker,
    pytest.mark.timeout(1800),  # where the CPU image is missing, it is built first
]

DOCKER = ("--sandbox", "docker")
REFERENCE = """
import torch
import torch.distributed as dist
from torch import nn

N = 64


class Model(nn.Module):
    def forward(self, x):
        total = x + 1
        dist.all_reduce(total)
        return total


def get_inputs():
    return [torch.rand(N)]
"""
PROBLEM = """
category = "Communication"
dtypes = ["fp32"]
description = "A sum over ranks."
ranks = 2

[workloads.smoke]
N = 64
"""
HONEST = """
import torch
import torch.distributed as dist
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, x)
        return sum(parts) + len(parts)
"""


@pytest.fixture
def pair(docker_gpu_field):
    """Put a second GPU and a problem of two ranks into the field; return the UUIDs of both GPUs."""
    folder = docker_gpu_field.candidates.parent.parent / "pair"
    (folder / "candidates").mkdir(parents=True)
    (folder / "reference.py").write_text(REFERENCE)
    (folder / "problem.toml").write_text(PROBLEM)
    (folder / "candidates" / "honest.py").write_text(HONEST)
    docker_gpu_field.write_gpu_matrix("pair/honest", gpu_wait_s=1)
    uuids = sorted((docker_gpu_field.board.uuid, f"{docker_gpu_field.board.uuid[:-1]}0"))
    docker_gpu_field.driver.set(*({**docker_gpu_field.board.gpu, "uuid": uuid} for uuid in uuids))
    return uuids


def test_ranks_run_on_both_gpus_which_are_held_and_watched(docker_gpu_field, pair):
    done = docker_gpu_field.run(*DOCKER)
    assert done.returncode == 0, done.stderr
    (record,) = docker_gpu_field.records()
    host = record["host"]
    assert (record["outcome"]["status"], record["cell"]["ranks"]) == ("passed", 2), record["outcome"]
    assert [device["uuid"] for device in host["devices"]] == pair
    assert (host["device"]["uuid"], host["exclusive"]) == ("+".join(pair), "proven")
    assert host["health"]["processes_gone"] is True
    assert docker_gpu_field.left_behind() == []


@pytest.mark.parametrize("place", [0, 1])
def test_ranks_do_not_run_while_one_gpu_is_in_use(docker_gpu_field, pair, place):
    with subprocess.Popen(("sleep", "600")) as stranger:
        docker_gpu_field.driver.occupy(pair[place], stranger.pid)
        docker_gpu_field.run(*DOCKER)
        stranger.kill()
    assert {status for _, status in docker_gpu_field.outcomes()} == {"gpu_busy"}
