"""My kernel against eager PyTorch on this machine, as a notebook: each ``# %%`` is a cell.

It needs no GPU and no Docker: everything runs as local processes on the CPU, with the PyTorch that is installed. For a
GPU, name its model in ``gpus`` in place of the vendor, and take ``platform`` out.
"""

# %% A problem, a kernel and a matrix, in a folder of their own.
import tempfile
from pathlib import Path

import kernel_matrix

FOLDER = Path(tempfile.mkdtemp(prefix="my-kernel-"))
FILES = {
    "problems/squares/problem.toml": """
category = "Reduce"
description = "Sum of squares of each row."
dtypes = ["fp32"]
[workloads.default]
M = 64
N = 1024
""",
    "problems/squares/reference.py": """
import torch
import torch.nn as nn

M = 64
N = 1024

class Model(nn.Module):
    def forward(self, x):
        return (x * x).sum(dim=1)

def get_inputs():
    return [torch.randn(M, N)]

def get_init_inputs():
    return []
""",
    "problems/squares/candidates/mine.py": """
import torch
import torch.nn as nn

class ModelNew(nn.Module):
    def forward(self, x):
        return torch.linalg.vecdot(x, x)
""",
    "matrix.toml": """
name = "my-kernel"
dtypes = ["fp32"]
gpus = [{name = "cpu", vendor = "cpu"}]
toolchains = [{name = "here", environment = "auto", platform = "cpu"}]
problems = [{source = "folder", path = "problems"}]
candidates = [{select = ["squares/mine"]}]
protocol = {sessions = 2, max_sessions = 2, budget_s = 0.5}
""",
}
for name, text in FILES.items():
    file = FOLDER / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text.lstrip(), encoding="utf-8")

# %% Plan: what would run here, and why the rest would not.
plan = kernel_matrix.make_plan(FOLDER / "matrix.toml", sandbox="process")
print(plan.frame())


# %% Run it. Ctrl-C, or the notebook's stop button, cleans up; running the cell again goes on.
def show(told: kernel_matrix.RunProgress) -> None:
    """Print a line when a cell ends."""
    if isinstance(told, kernel_matrix.RunEvent) and told.record is not None:
        print(told.cell.candidate.id, told.record.outcome.status.value, told.record.outcome.evidence.message)


ran = kernel_matrix.run(plan, FOLDER / "results", listener=show)

# %% The result: times in nanoseconds, the speed-up over eager with its interval, and how far to trust it.
latest = ran.results().latest()
print(latest.select("candidate", "status", "candidate_median_ns", "baseline_median_ns", "speedup", "verdict", "grade"))

# %% Nothing here should be impossible.
errors = [found.check.name for found in kernel_matrix.audit(ran.folder) if found.findings.height]
print("audit:", errors)
