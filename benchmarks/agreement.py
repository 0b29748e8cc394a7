"""Verdicts on real sessions: identical code must not be told apart, 2 % more must be found.

    python benchmarks/agreement.py [--sessions 16] [--candidate @reference] [--lock FILE] [--folder FOLDER]

Ten operators from 5 µs to 2 ms are timed in fresh sessions against themselves (``@reference``), or against
``two_percent_slower``. Then comparisons are drawn from the sessions, 20 per operator: sessions in random order, from
five up to ten as tier ``publish`` takes them. Comparisons of one operator share sessions, so they are not independent.
Wanted: never a false verdict in 99 % of 200, ``equivalent`` in 90 %, 2 % slower found in 95 %. What 2 % more would be
is also worked out exactly: each candidate's time × 1.02.
"""

from __future__ import annotations

import random
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import gpu_runs

from kernel_matrix.measure.intervals import log_interval
from kernel_matrix.measure.timed import CANDIDATE, WorkloadTimes
from kernel_matrix.measure.verdict import compare
from kernel_matrix.model.enums import Verdict

COMPARISONS = 20
"""Per operator."""
FEWEST, MOST, HALF_WIDTH = 5, 10, 0.005
"""Of tier ``publish``."""
PROTOCOL = """\
min_samples = 100
budget_s = 2
"""


def main() -> None:
    """Measure and print."""
    parser = gpu_runs.parser(__doc__)
    parser.add_argument("--sessions", type=int, default=16)
    parser.add_argument("--candidate", default="@reference", choices=("@reference", "two_percent_slower"))
    parser.add_argument("--measured", action="store_true", help="compare what is in the folder; measure nothing")
    arguments = parser.parse_args()
    if arguments.measured and arguments.folder is None:
        parser.error("--measured needs the --folder that was measured into")
    with gpu_runs.working_folder(arguments) as folder:
        if not arguments.measured:
            matrix = gpu_runs.operators_matrix("agreement", arguments, PROTOCOL)
            gpu_runs.run(folder, matrix, arguments.lock, gpu_runs.sandbox_of(arguments))
        report(speedups(folder), random.Random(4))  # which sessions are drawn is no secret


def speedups(folder: Path) -> dict[str, list[tuple[float, float]]]:
    """Operator → (speed-up, candidate's median in nanoseconds) of each session."""
    found: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for record in gpu_runs.records(folder / gpu_runs.RESULTS):
        if record.outcome.evidence.message:
            print(f"{record.outcome.status.value}: {record.outcome.evidence.message}")
        for session in record.sessions:
            for workload in session.workloads:
                times = WorkloadTimes.of_report(workload)
                ratio, median_ns = times.speedup(), times.time_ns(CANDIDATE)
                if ratio is not None and median_ns is not None:
                    found[workload.name].append((ratio, median_ns))
    return found


def report(found: dict[str, list[tuple[float, float]]], dice: random.Random) -> None:
    """Print what the comparisons came to."""
    total: dict[str, Counter[str]] = {"as measured": Counter(), "x 1.02": Counter()}
    print(f"{'operator':<14}{'µs':>10}{'sessions':>10}{'CV time':>10}{'CV ratio':>10}{'ratio':>9}  as measured; x 1.02")
    for name, sessions in found.items():
        ratios, medians = [ratio for ratio, _ in sessions], [median for _, median in sessions]
        same = Counter(comparisons(ratios, dice))
        more = Counter(comparisons([ratio / 1.02 for ratio in ratios], dice))
        total["as measured"] += same
        total["x 1.02"] += more
        spread = f"{variation(medians):>10.3%}{variation(ratios):>10.3%}{statistics.mean(ratios):>9.4f}"
        middle = statistics.median(medians) / 1e3
        print(f"{name:<14}{middle:>10.1f}{len(sessions):>10}{spread}  {dict(same)}; {dict(more)}")
    for title, counts in total.items():
        print(title, {word: f"{count / max(1, sum(counts.values())):.1%}" for word, count in counts.items()})


def variation(values: Sequence[float]) -> float:
    """Coefficient of variation."""
    return statistics.stdev(values) / statistics.mean(values) if len(values) > 1 else 0.0


def comparisons(ratios: Sequence[float], dice: random.Random) -> Iterator[str]:
    """Verdicts on sessions drawn at random."""
    for _ in range(COMPARISONS if len(ratios) >= FEWEST else 0):
        drawn = dice.sample(ratios, min(MOST, len(ratios)))
        count = FEWEST
        while count < len(drawn) and log_interval(drawn[:count]).half_width > HALF_WIDTH:
            count += 1
        yield Verdict(compare(drawn[:count]).verdict).value


if __name__ == "__main__":
    main()
