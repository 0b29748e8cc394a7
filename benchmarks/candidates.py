"""What many candidates of one problem cost: softmax, with a source of its own for each candidate.

    python benchmarks/candidates.py [--count 100] [--model GLOB] [--lock FILE] [--folder FOLDER]
    python benchmarks/candidates.py --cpu [--sandbox process] [--count 10]

On a GPU the candidates are in Triton, and are built before the clock starts: wanted are 100 in at most 150 s. On a CPU
they are in PyTorch, and the workload is small. Prints the time of the whole command, and the medians of the cells by
whether their judge was new.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
from collections import Counter
from pathlib import Path

import gpu_runs

from kernel_matrix.results.record import Record

PROBLEM = gpu_runs.ROOT / "problems" / "softmax"
TORCH = """\
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        powers = torch.exp(x - x.amax(dim=-1, keepdim=True))
        return powers / powers.sum(dim=-1, keepdim=True)
"""
CPU = """\
name = "candidates"
dtypes = ["fp32"]
gpus = [{ name = "cpu", vendor = "cpu" }]
toolchains = [{ name = "cpu", torch = "2.13.0", triton = "3.7.1" }]
"""
CELLS = """\
problems = [{{ source = "folder", path = "problems", workloads = ["{workload}"] }}]
candidates = [{{ select = "*/numbered_*" }}]

[protocol]
tier = "screen"
"""


def main() -> None:
    """Measure and print."""
    parser = gpu_runs.parser(__doc__)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--cpu", action="store_true", help="measure on the CPU, with candidates in PyTorch")
    arguments = parser.parse_args()
    sandbox = gpu_runs.sandbox_of(arguments)
    with gpu_runs.working_folder(arguments) as folder:
        write_candidates(folder / "problems" / "softmax", arguments.count, in_torch=arguments.cpu)
        if arguments.cpu:
            matrix = CPU + CELLS.format(workload="smoke")
        else:
            matrix = gpu_runs.head("candidates", arguments) + CELLS.format(workload="default")
            build(folder, matrix, arguments.lock, sandbox)
        seconds = gpu_runs.run(folder, matrix, arguments.lock, sandbox)
        records = gpu_runs.records(folder / gpu_runs.RESULTS)
        print(f"{len(records)} cells in {seconds:.1f} s (the command, from start to end)")
        print(dict(Counter(record.outcome.status.value for record in records)))
        for title, chosen in (("judge new", False), ("judge kept", True)):
            print(f"{title:10} {line([record for record in records if is_shared(record) is chosen])}")


def write_candidates(problem: Path, count: int, *, in_torch: bool) -> None:
    """Copy the problem, with ``count`` candidates whose sources differ."""
    source = TORCH if in_torch else (PROBLEM / "candidates" / "triton_row.py").read_text(encoding="utf-8")
    shutil.copytree(PROBLEM, problem, ignore=shutil.ignore_patterns("candidates", "__pycache__"))
    (problem / "candidates").mkdir()
    for number in range(count):
        path = problem / "candidates" / f"numbered_{number:03}.py"
        path.write_text(f"{source}\nNUMBER = {number}\n", encoding="utf-8")


def build(folder: Path, matrix: str, lock: str | None, sandbox: str) -> None:
    """Compile all candidates, whose artifacts stay in the cache."""
    path = folder / "matrix.toml"
    path.write_text(matrix, encoding="utf-8")
    command = (*gpu_runs.command(path, folder / "built", lock, sandbox), "--compile-only")
    subprocess.run(command, cwd=gpu_runs.ROOT, check=True, stdout=subprocess.DEVNULL)


def is_shared(record: Record) -> bool:
    """Return True if the record's judge had served another cell before."""
    return bool(record.sessions) and record.sessions[0].earlier_cells > 0


def line(records: list[Record]) -> str:
    """Medians of the phases of these cells, seconds."""
    if not records:
        return "no cells"
    inside = [record.sessions[0].durations_s for record in records if record.sessions]
    phases = {name: statistics.median(one.get(name, 0.0) for one in inside) for name in inside[0]}
    total = statistics.median(record.host.phases_s["total"] for record in records)
    return f"{len(records)} cells, {total:.2f} s each: " + " ".join(f"{n} {s:.2f}" for n, s in phases.items())


if __name__ == "__main__":
    main()
