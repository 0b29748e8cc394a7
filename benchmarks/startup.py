"""How long the command line takes to answer: median of fresh processes, against the target of 0.3 s.

Usage: python benchmarks/startup.py [RUNS]    (default 10; exit 1 when the target is missed)
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

TARGET_S = 0.3
COMMAND = Path(sys.executable).with_name("kernel-matrix")


def measure_s(verb: str, runs: int) -> list[float]:
    subprocess.run((COMMAND, verb), check=True, capture_output=True)  # compiles modules and fills the page cache
    seconds = []
    for _ in range(runs):
        begun = time.perf_counter()
        subprocess.run((COMMAND, verb), check=True, capture_output=True)
        seconds.append(time.perf_counter() - begun)
    return seconds


def main() -> int:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    missed = False
    for verb in ("--help", "version"):
        seconds = measure_s(verb, runs)
        median = statistics.median(seconds)
        missed |= median > TARGET_S
        print(
            f"kernel-matrix {verb}: median {median:.3f} s, slowest {max(seconds):.3f} s of {runs}, target {TARGET_S} s"
        )
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
