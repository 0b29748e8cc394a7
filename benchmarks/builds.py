"""Building many CUDA candidates beside one GPU: how long all take, and how long the GPU is held for nothing.

    python benchmarks/builds.py [--candidates 32] [--alone 2] [--cached] [--model GLOB] [--lock FILE] [--folder FOLDER]

Writes that many different CUDA candidates of one problem, builds a few of them one by one, then runs all of them with
an empty build cache and one builder per core. Wanted on 16 cores: until the last build has ended at most 1/8 of what
building one by one takes, and the GPU leased for at most 1.2 times as long as it is measured on. ``--cached`` runs
everything once more, with all builds at hand.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import gpu_runs

from kernel_matrix.attempt.buildcache import CACHE_VARIABLE
from kernel_matrix.model.enums import Status
from kernel_matrix.results.record import Record

MATRIX = """\
problems = [{{ source = "folder", path = "problems" }}]
candidates = [{{ select = {select} }}]

[protocol]
tier = "screen"

[policy]
build_workers = {workers}
"""
PROBLEM = """\
category = "Math"
dtypes = ["fp32"]
description = "Twice a vector."
flops = "N"
bytes = "2 * N * itemsize"

[workloads.default]
N = 16777216
"""
REFERENCE = """\
import torch
import torch.nn as nn

N = 16777216


class Model(nn.Module):
    def forward(self, x):
        return 2 * x


def get_inputs():
    return [torch.randn(N)]


def get_init_inputs():
    return []
"""
CANDIDATE = '''\
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

__global__ void double_kernel(const float* x, float* y, int64_t n) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += stride) {
    y[i] = 2.0f * x[i];
  }
}

torch::Tensor twice(torch::Tensor x) {
  auto y = torch::empty_like(x);
  double_kernel<<<BLOCKS, 256, 0, c10::cuda::getCurrentCUDAStream()>>>(
      x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return y;
}
""".replace("BLOCKS", str(1024 + NUMBER))

extension = load_inline(
    name="twice_NUMBER", cpp_sources="torch::Tensor twice(torch::Tensor x);", cuda_sources=SOURCE, functions=["twice"]
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.twice(x)
'''


@dataclass(frozen=True)
class Measured:
    """One run of the command."""

    seconds: float
    built_s: float
    """From its start until the last build had ended."""
    records: Sequence[Record]

    def phase_s(self, name: str) -> float:
        """Seconds that all cells together spent in a phase."""
        return sum(record.host.phases_s.get(name, 0.0) for record in self.records)

    @property
    def build_s(self) -> float:
        """Seconds that the builders of all cells took, one added to the other."""
        return sum(record.host.build.seconds for record in self.records if record.host.build is not None)


def main() -> None:
    """Measure and print."""
    parser = gpu_runs.parser(__doc__)
    parser.add_argument("--candidates", type=int, default=32)
    parser.add_argument("--alone", type=int, default=2, help="how many to build one by one")
    parser.add_argument("--cached", action="store_true", help="run all once more from the cache")
    arguments = parser.parse_args()
    with gpu_runs.working_folder(arguments) as folder:
        write_problem(folder / "problems" / "twice", arguments.candidates)
        alone = run(folder, "alone", [f"twice/cuda_n{n:03}" for n in range(arguments.alone)], arguments, workers=1)
        one_by_one = alone.build_s / arguments.alone * arguments.candidates
        print(f"one by one: {alone.build_s / arguments.alone:.1f} s each, {one_by_one:.0f} s for all")
        together = run(folder, "together", ["twice/*"], arguments)
        print(f"together:   {together.built_s:.0f} s, 1/{one_by_one / together.built_s:.1f} of that (wanted: 1/8)")
        print_run("together:  ", together)
        if arguments.cached:
            print_run("cached:    ", run(folder, "together", ["twice/*"], arguments))


def print_run(name: str, measured: Measured) -> None:
    """How long the GPU was leased, against how long it was measured on."""
    leased = measured.phase_s("total") - measured.phase_s("lease_wait")
    measuring = measured.phase_s("inside")
    passed = sum(record.outcome.status is Status.PASSED for record in measured.records)
    print(f"{name} {passed} of {len(measured.records)} cells passed in {measured.seconds:.0f} s")
    for record in measured.records:
        if record.outcome.status is not Status.PASSED:
            print(f"{name} {record.cell.candidate}: {record.outcome.status.value}: {record.outcome.evidence.message}")
    print(f"{name} leased {leased:.1f} s, measuring {measuring:.1f} s: {leased / measuring:.2f} times (wanted: 1.2)")


def write_problem(folder: Path, candidates: int) -> None:
    """Write the problem and its candidates, each with a source of its own."""
    (folder / "candidates").mkdir(parents=True)
    (folder / "problem.toml").write_text(PROBLEM)
    (folder / "reference.py").write_text(REFERENCE)
    for number in range(candidates):
        path = folder / "candidates" / f"cuda_n{number:03}.py"
        path.write_text(CANDIDATE.replace("NUMBER", str(number)))
        path.with_suffix(".toml").write_text('expect = "passed"\ndescription = "Twice."\n')


def run(folder: Path, cache: str, select: Sequence[str], arguments: argparse.Namespace, workers: int = 0) -> Measured:
    """Run the selected candidates with a build cache of their own."""
    matrix = folder / "matrix.toml"
    cells = MATRIX.format(select=json.dumps(select), workers=workers)
    matrix.write_text(gpu_runs.head("builds", arguments) + cells)
    results = Path(tempfile.mkdtemp(prefix="results-", dir=folder))
    command = gpu_runs.command(matrix, results, arguments.lock, gpu_runs.sandbox_of(arguments))
    environment = {**os.environ, CACHE_VARIABLE: str(folder / cache)}
    started, built_at = time.monotonic(), 0.0
    with subprocess.Popen(command, cwd=gpu_runs.ROOT, env=environment, stdout=subprocess.PIPE, text=True) as running:
        for line in running.stdout or ():
            if line.startswith("built "):
                built_at = time.monotonic()
    seconds = time.monotonic() - started
    if running.returncode:
        sys.exit(f"the run ended with code {running.returncode}")
    return Measured(seconds, max(0.0, built_at - started), gpu_runs.records(results))


if __name__ == "__main__":
    main()
