"""Go on with the published set on this machine for a number of seconds, and print what its new records say.

    python benchmarks/published_set.py SECONDS RESULTS [--filter KEY=GLOB]...

The first call unpacks ``results/published.kmz`` into ``RESULTS/published``. Each call compiles what was not compiled
before, then runs cells that have no record until the time is over, and ends the run as Ctrl-C does. RESULTS and the
cache of builds have to stay from call to call. Afterwards, where polars is installed::

    kernel-matrix pack RESULTS/published -o results/published.kmz --matrix problems/published.toml --force
    python -m tools.describe_answers

Builds come first, since a build beside a timed cell disturbs it: medians of five sessions then differ by up to 10 %.
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
BUILD_SHARE = 0.5
"""Of the time, at most, for builds; what is missing then is built beside cells, or by the next call."""
ENDING_S = 15.0
"""For cells that are under way to be given up."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seconds", type=float, help="what this call may take")
    parser.add_argument("results", type=Path, help="where records go")
    parser.add_argument("--filter", action="append", default=[], metavar="KEY=GLOB", help="only these cells")
    arguments = parser.parse_args()
    until = time.monotonic() + arguments.seconds - ENDING_S
    if not (arguments.results / MATRIX.stem).exists():
        ended(kernel_matrix("unpack", PACKED, arguments.results / MATRIX.stem), until)
    before = {(record.cell_id, record.attempt) for record in gpu_runs.records(arguments.results)}
    filters = [word for pattern in arguments.filter for word in ("--filter", pattern)]
    run = ("run", MATRIX, "--sandbox", "process", "--results", arguments.results, *filters)
    began = time.monotonic()
    ended(kernel_matrix(*run, "--compile-only"), began + BUILD_SHARE * (until - began))
    print(f"builds: {time.monotonic() - began:.0f} s", flush=True)
    began = time.monotonic()
    ended(kernel_matrix(*run), until)
    records = [r for r in gpu_runs.records(arguments.results) if (r.cell_id, r.attempt) not in before]
    for record in records:
        print(f"{record.cell.toolchain} {record.cell.dtype.value:<9} {record.cell.candidate}", evaluations.line(record))
    print(dict(Counter(record.outcome.status.value for record in records)))
    print(f"{len(records)} cells in {time.monotonic() - began:.0f} s, {len(before)} before")


def kernel_matrix(*words: str | Path) -> subprocess.Popen[bytes]:
    """Start a command of this project without its output."""
    return subprocess.Popen(
        (sys.executable, "-m", "kernel_matrix", *words), cwd=gpu_runs.ROOT, stdout=subprocess.DEVNULL
    )


def ended(process: subprocess.Popen[bytes], until: float) -> None:
    """Wait for a command; interrupt it at ``until``, monotonic seconds."""
    try:
        process.wait(max(0.0, until - time.monotonic()))
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        process.wait()


if __name__ == "__main__":
    main()
