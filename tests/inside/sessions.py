"""The small problem and the job that session tests vary."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kernel_matrix.model.enums import Dtype, Role
from kernel_matrix.model.messages import ContestantSpec, JudgeJob, JudgeTimeouts, ProtocolSpec, WorkloadSpec

SOFTMAX = """
import torch
from torch import nn

rows, columns = 8, 64

class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=-1)

def get_inputs():
    return [torch.randn(rows, columns)]

def get_init_inputs():
    return []
"""

CANDIDATE = ContestantSpec("candidate", Role.CANDIDATE, "candidate.py", "ModelNew")
EAGER = ContestantSpec("eager", Role.BASELINE, "problem.py", "Model")
LIBRARY = ContestantSpec("library", Role.RIVAL, "library.py", "ModelNew")

QUICK = ProtocolSpec(trials=2, warmup_calls=2, min_samples=8, max_samples=16, budget_s=2.0, block_calls=3)


def make_job(**changes: Any) -> JudgeJob:
    """A small CPU job."""
    job = JudgeJob(
        cell_id="c" * 32,
        session=0,
        device="cpu",
        dtype=Dtype.FP32,
        seed="0123456789abcdef" * 2,
        workloads=(WorkloadSpec("smoke", {}),),
        protocol=QUICK,
        timeouts=JudgeTimeouts(connect_s=30, load_s=30, first_call_s=20, call_s=3, session_s=60),
        contestants=(CANDIDATE, EAGER),
    )
    return replace(job, **changes)
