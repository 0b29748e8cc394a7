"""Three timers on one GPU: the judge's, Triton's ``do_bench`` and KernelBench's, for the same kernels at the same size.

    python benchmarks/timers.py KERNELBENCH [--processes 20] [--environment auto] [--folder FOLDER]

Ten Triton candidates of this project, workload ``default``, fp32, each timed by every timer in as many fresh processes,
all of them on the board on which the judge timed it; boards work side by side. ``do_bench`` says its median with its
own defaults; KernelBench its mean of 100 calls, each after its clearing of the L2 cache; the judge what records have.
Compared are the medians over processes, and how far processes scatter.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stdout
from pathlib import Path

import gpu_runs
from evaluations import median_ns
from peer_evaluator import import_evaluator

from kernel_matrix.results.record import Record

KERNELS = (
    *("attention/triton_flash", "cross_entropy/triton_row", "gelu_tanh/triton_flat", "layer_norm/triton_row"),
    *("matmul/triton_tiled", "max_pool2d/triton_window", "rms_norm/triton_row", "softmax/triton_row"),
    *("swiglu/triton_blocked", "vector_add/triton_blocked"),
)
TIMERS = ("judge", "do_bench", "kernelbench")
CALLS = 100
"""Of KernelBench's timer: what its evaluator uses."""
MATRIX = """
candidates = [{{ select = {candidates} }}]
problems = [{{ source = "folder", path = {path}, select = {problems}, workloads = ["default"] }}]

[protocol]
tier = "screen"
sessions = {sessions}
"""


def main() -> int:
    """Measure with all timers and print a table, or, in a process of its own, time one kernel with the two peers."""
    parser = gpu_runs.parser(__doc__)
    parser.add_argument("kernelbench", type=Path, help="a checkout of KernelBench")
    parser.add_argument("--processes", type=int, default=20)
    parser.add_argument("--kernels", nargs="+", metavar="NAME", default=KERNELS)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(peers_us(arguments.one, arguments.kernelbench)))
        return 0
    by_board: defaultdict[str, list[Record]] = defaultdict(list)
    with gpu_runs.working_folder(arguments) as folder:
        gpu_runs.run(folder, matrix(arguments), arguments.lock, gpu_runs.sandbox_of(arguments))
        for record in gpu_runs.records(folder / gpu_runs.RESULTS):
            by_board[record.host.device["uuid"]].append(record)
    with ThreadPoolExecutor(len(by_board) or 1) as boards:
        list(boards.map(lambda of_board: time_kernels(of_board, arguments), by_board.values()))
    return 0


def time_kernels(judged: Sequence[Record], arguments: argparse.Namespace) -> None:
    """Time kernels that the judge has timed with the two peers, on the same board, and print a line of each."""
    for record in judged:
        times_us: dict[str, list[float]] = {timer: [] for timer in TIMERS}
        times_us["judge"] = [found / 1e3 for found in map(median_ns, record.sessions) if found]
        for _ in range(arguments.processes):
            for timer, time_us in in_a_process(record, arguments.kernelbench).items():
                times_us[timer].append(time_us)
        print(line(record.cell.candidate, times_us), flush=True)


def matrix(arguments: argparse.Namespace) -> str:
    """One cell per kernel, with a session for each process of the other timers."""
    problems = sorted({name.split("/")[0] for name in arguments.kernels})
    cells = MATRIX.format(
        candidates=json.dumps(list(arguments.kernels)),
        problems=json.dumps(problems),
        path=json.dumps(str(gpu_runs.ROOT / "problems")),
        sessions=arguments.processes,
    )
    return gpu_runs.head("timers", arguments) + cells


def in_a_process(record: Record, kernelbench: Path) -> Mapping[str, float]:
    """Return what each peer says in a fresh process that sees only the record's board: microseconds."""
    command = (sys.executable, __file__, str(kernelbench), "--one", record.cell.candidate)
    board = {"CUDA_VISIBLE_DEVICES": record.host.device["uuid"]}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=os.environ | board)
    times: Mapping[str, float] = json.loads(done.stdout.splitlines()[-1])
    return times


def peers_us(name: str, kernelbench: Path) -> dict[str, float]:
    """Time one kernel with ``do_bench`` and KernelBench's timer."""
    import torch  # noqa: PLC0415  # the parent needs none
    from triton.testing import do_bench  # noqa: PLC0415

    problem, candidate = name.split("/")
    folder = gpu_runs.ROOT / "problems" / problem
    reference = gpu_runs.load_module(folder / "reference.py")
    own = gpu_runs.load_module(folder / "candidates" / f"{candidate}.py")
    arguments = reference.get_init_inputs() if hasattr(reference, "get_init_inputs") else []
    model = own.ModelNew(*arguments).cuda()
    inputs = [value.cuda() if isinstance(value, torch.Tensor) else value for value in reference.get_inputs()]
    import_evaluator(kernelbench)  # with its imports replaced that are not installed; it changes torch.randn
    timing = importlib.import_module("kernelbench.timing")
    with torch.no_grad(), redirect_stdout(sys.stderr):
        calls_ms = timing.time_execution_with_cuda_event(model, inputs, num_trials=CALLS, verbose=False)
        bench_ms = do_bench(lambda: model(*inputs), return_mode="median")
    return {"do_bench": bench_ms * 1e3, "kernelbench": statistics.mean(calls_ms) * 1e3}


def line(name: str, times_us: Mapping[str, Sequence[float]]) -> str:
    """One kernel in a line: of each timer the median over processes, their scatter, and the ratio to the judge's."""
    text, judge_us = f"{name:<28}", statistics.median(times_us["judge"] or [float("nan")])
    for timer, times in times_us.items():
        if not times:
            text += f"  {timer}: none"
            continue
        median = statistics.median(times)
        scatter = statistics.stdev(times) / statistics.mean(times) if len(times) > 1 else 0.0
        text += f"  {timer} {median:9.1f} µs CV {scatter:6.2%} {median / judge_us:6.3f}"
    return text


if __name__ == "__main__":
    sys.exit(main())
