"""A small problem, and a function to write files."""

import textwrap
from pathlib import Path

REFERENCE = """
import torch
import torch.nn as nn

M = 4
N = 2 * M
SCALE = 0.5
KIND = "sum"


class Model(nn.Module):
    def forward(self, x):
        return x * SCALE


def get_inputs():
    return [torch.rand(M, N)]
"""

PROBLEM = """
category = "Math"
dtypes = ["fp32", "bf16"]
description = "Half of a matrix."
flops = "M * N"
bytes = "2 * M * N * itemsize"

[workloads.smoke]

[workloads.default]
M = 8
N = 32
"""


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text).lstrip("\n"), encoding="utf-8")
    return path
