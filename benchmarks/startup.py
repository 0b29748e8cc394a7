"""Time until the command line answers and until the package is imported: medians of fresh processes, against targets.

Usage: python benchmarks/startup.py [RUNS]    (default 10; exit 1 when a target is missed)
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

COMMAND = str(Path(sys.executable).with_name("kernel-matrix"))
CASES = {
    "kernel-matrix --help": ((COMMAND, "--help"), 0.3),
    "kernel-matrix version": ((COMMAND, "version"), 0.3),
    "import kernel_matrix": ((sys.executable, "-c", "import kernel_matrix"), 0.15),
}
"""Name → command, and its target in seconds; the import includes the start of Python."""


def measure_s(command: tuple[str, ...], runs: int) -> list[float]:
    subprocess.run(command, check=True, capture_output=True)  # compiles modules and fills the page cache
    seconds = []
    for _ in range(runs):
        begun = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        seconds.append(time.perf_counter() - begun)
    return seconds


def main() -> int:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    missed = False
    for name, (command, target_s) in CASES.items():
        seconds = measure_s(command, runs)
        median = statistics.median(seconds)
        missed |= median > target_s
        print(f"{name}: median {median:.3f} s, slowest {max(seconds):.3f} s of {runs}, target {target_s} s")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
