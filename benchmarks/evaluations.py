"""What one evaluation costs, and how well fresh sessions agree: ten KernelBench problems, the reference as candidate.

    python benchmarks/evaluations.py KERNELBENCH [--sessions 1] [--model GLOB] [--lock FILE] [--folder FOLDER]
    python benchmarks/evaluations.py KERNELBENCH --select 'level1/*' 'level2/*' --memory-gib 40

Wanted with one session: all ten in at most 25 s, each in at most 4 s. Wanted with five: a coefficient of variation of
the session medians of at most 0.1 % for nine of them and 0.3 % for all, clocks not locked. Wanted of levels 1 and 2:
on 80 GB a verdict, or a flaw of the problem, for all 200, with 40 GiB for 198, with 24 GiB for 190.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

import gpu_runs

from kernel_matrix.measure.timed import CANDIDATE, WorkloadTimes
from kernel_matrix.model.messages import SessionReport
from kernel_matrix.results.record import Record

PROBLEMS = (1, 4, 23, 26, 36, 40, 47, 50, 89, 95)
"""Of level 1."""
CAP = """
[policy]
device_memory_gib = {}
"""
MATRIX = """\
problems = [{{ source = "kernelbench", path = {path}, select = {select} }}]
candidates = [{{ select = "*/@reference" }}]

[protocol]
tier = "screen"
sessions = {sessions}
"""


def main() -> None:
    """Measure and print."""
    parser = gpu_runs.parser(__doc__)
    parser.add_argument("kernelbench", type=Path, help="a checkout of KernelBench")
    parser.add_argument("--sessions", type=int, default=1)
    parser.add_argument("--select", nargs="+", metavar="GLOB", help="other problems than the ten")
    parser.add_argument("--memory-gib", type=float, help="memory of the device that a cell may use")
    arguments = parser.parse_args()
    with gpu_runs.working_folder(arguments) as folder:
        seconds = gpu_runs.run(folder, matrix(arguments), arguments.lock, gpu_runs.sandbox_of(arguments))
        records = gpu_runs.records(folder / gpu_runs.RESULTS)
        for record in records:
            print(line(record))
        print(dict(Counter(record.outcome.status.value for record in records)))
        print(f"{len(records)} cells in {seconds:.1f} s (the command, from start to end)")


def matrix(arguments: argparse.Namespace) -> str:
    """One cell per problem."""
    select = json.dumps(arguments.select or [f"level1/{number}_*" for number in PROBLEMS])
    path = json.dumps(str(arguments.kernelbench.resolve()))
    cells = MATRIX.format(path=path, select=select, sessions=arguments.sessions)
    cap = "" if arguments.memory_gib is None else CAP.format(arguments.memory_gib)
    return gpu_runs.head("evaluations", arguments) + cells + cap


def line(record: Record) -> str:
    """One record in a line: status, cost, phases, and how its sessions agree."""
    started, ended = (datetime.fromisoformat(at) for at in (record.host.started_at, record.host.ended_at))
    took_s = (ended - started).total_seconds()
    text = f"{record.cell.problem:<44} {record.outcome.status.value:<16} {took_s:6.2f} s"
    medians = [found for session in record.sessions if (found := median_ns(session))]
    if medians:
        text += f"  {statistics.median(medians) / 1e3:10.1f} µs"
    if len(medians) > 1:
        text += f"  CV {statistics.stdev(medians) / statistics.mean(medians):.3%}"
    return f"{text}  {phases(record.sessions[-1].durations_s) if record.sessions else record.outcome.evidence.message}"


def median_ns(session: SessionReport) -> float | None:
    """Return the candidate's median of one session, which has one workload if it got that far."""
    return next((WorkloadTimes.of_report(workload).time_ns(CANDIDATE) for workload in session.workloads), None)


def phases(durations_s: Mapping[str, float]) -> str:
    """Where the judge's time went."""
    return " ".join(f"{name} {seconds:.2f}" for name, seconds in durations_s.items())


if __name__ == "__main__":
    main()
