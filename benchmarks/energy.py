"""Energy per call by the driver's counter: how fine its steps are, and how well sessions of equal code agree.

    python benchmarks/energy.py [--sessions 3] [--lock FILE | --environment auto] [--folder FOLDER]

Operators from 5 µs to 2 ms are held against themselves in ``sustained`` replays, so that the ratio of energies is 1.
Per operator: joules per call, mean power, what the counter's steps leave open, the variation between sessions, and the
ratio with its 95 % interval.
"""

from __future__ import annotations

import statistics
from collections import defaultdict

import gpu_runs

from kernel_matrix.measure.energy import energy_ratio, joules_per_call
from kernel_matrix.measure.intervals import log_interval
from kernel_matrix.measure.timed import CANDIDATE
from kernel_matrix.results.reading import Document, read_record

PROTOCOL = """\
min_samples = 20
precision_s = 0.2
regimes = ["cold", "sustained"]
"""


def main() -> None:
    """Measure and print."""
    parser = gpu_runs.parser(__doc__)
    parser.add_argument("--sessions", type=int, default=3)
    parser.add_argument("--candidate", default="@reference", choices=("@reference", "two_percent_slower"))
    arguments = parser.parse_args()
    with gpu_runs.working_folder(arguments) as folder:
        matrix = gpu_runs.operators_matrix("energy", arguments, PROTOCOL)
        seconds = gpu_runs.run(folder, matrix, arguments.lock, gpu_runs.sandbox_of(arguments))
        print(f"{seconds:.0f} s")
        for path in (folder / gpu_runs.RESULTS).glob("*/records/*.json"):
            report(read_record(path))


def report(record: Document) -> None:
    """Print one row per workload."""
    if record["outcome"]["evidence"]["message"]:
        print(record["outcome"]["status"], record["outcome"]["evidence"]["message"])
    sessions = defaultdict(list)
    for session in record["sessions"]:
        for workload in session["workloads"]:
            sessions[workload["name"]].append(workload)
    print(f"{'operator':<14}{'mJ':>10}{'W':>8}{'steps leave':>13}{'CV':>8}  ratio")
    for name, workloads in sessions.items():
        found = [one for workload in workloads if (one := joules_per_call(workload, CANDIDATE))]
        ratios = [one for workload in workloads if (one := energy_ratio(workload))]
        if not found or not ratios:
            print(f"{name:<14} no energy: {[workload['labels'] for workload in workloads]}")
            continue
        estimates = [one.estimate for one in found]
        mean = statistics.fmean(estimates)
        spread = statistics.stdev(estimates) / mean if len(estimates) > 1 else 0.0
        left = statistics.fmean(one.half_width for one in found)
        whole = log_interval([one.estimate for one in ratios])
        print(f"{name:<14}{mean * 1e3:>10.4f}{power(workloads):>8.1f}{left:>13.2%}{spread:>8.2%}", end="  ")
        print(f"{whole.estimate:.4f} ({whole.low:.4f} to {whole.high:.4f})")


def power(workloads: list[Document]) -> float:
    """Mean power of the candidate's readings, watts."""
    readings = [one for workload in workloads for one in workload["energies"] if one["contestant"] == CANDIDATE]
    return statistics.fmean(2e6 * one["energy_mj"] / (one["shortest_ns"] + one["longest_ns"]) for one in readings)


if __name__ == "__main__":
    main()
