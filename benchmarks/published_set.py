"""Go on with the published set on this machine for a number of seconds, and print what its new records say.

    python benchmarks/published_set.py SECONDS RESULTS [--filter KEY=GLOB]...

The first call unpacks ``results/published.kmz`` into ``RESULTS/published``. Each call runs cells that have no record
until the time is over, and ends the run as Ctrl-C does. What these cells need is compiled before the first of them
begins, since they are of tier ``publish``. RESULTS and the cache of builds (``~/.cache/kernel-matrix``) have to stay
from call to call. Where polars is not installed, unpack RESULTS/published before the first call. Afterwards, where it
is installed::

    kernel-matrix pack RESULTS/published -o results/published.kmz --matrix problems/published.toml --force
    python -m tools.describe_answers
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import evaluations
import gpu_runs

PACKED = gpu_runs.ROOT / "results" / "published.kmz"
MATRIX = gpu_runs.ROOT / "problems" / "published.toml"
ENDING_S = 15.0
"""For cells that are under way to be given up."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seconds", type=float, help="what this call may take")
    parser.add_argument("results", type=lambda text: Path(text).resolve(), help="where records go")
    parser.add_argument("--filter", action="append", default=[], metavar="KEY=GLOB", help="only these cells")
    arguments = parser.parse_args()
    until = time.monotonic() + arguments.seconds - ENDING_S
    folder = arguments.results / MATRIX.stem
    if not folder.exists():
        subprocess.run((sys.executable, "-m", "kernel_matrix", "unpack", PACKED, folder), cwd=gpu_runs.ROOT, check=True)
    before = {(record.cell_id, record.attempt) for record in gpu_runs.records(arguments.results)}
    filters = [word for pattern in arguments.filter for word in ("--filter", pattern)]
    began = time.monotonic()
    run_until(until, *gpu_runs.command(MATRIX, arguments.results, None, "process"), *filters)
    records = [r for r in gpu_runs.records(arguments.results) if (r.cell_id, r.attempt) not in before]
    for record in records:
        print(f"{record.cell.toolchain} {record.cell.dtype.value:<9} {record.cell.candidate}", evaluations.line(record))
    print(dict(Counter(record.outcome.status.value for record in records)))
    print(f"{len(records)} cells in {time.monotonic() - began:.0f} s, {len(before)} before")


def run_until(until: float, *command: str | Path) -> None:
    """Run a command without its output, and interrupt it at ``until``, monotonic seconds."""
    with subprocess.Popen(command, cwd=gpu_runs.ROOT, stdout=subprocess.DEVNULL) as process:
        try:
            process.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)


if __name__ == "__main__":
    main()
