"""Sandbox overhead per cell: what a cell costs beyond waiting for its device and what judge and candidate do.

    python benchmarks/overhead.py [--sandbox docker|process ...] [--cells 10]

Runs one quick candidate of the shipped matrix again and again with each sandbox that is available here, and reads
``host.phases_s`` of the records: ``overhead`` is the cell's whole time less its build, its wait for the device, and the
judge's own time (which holds the import of torch, loading, verifying and timing). Wanted: at most 1.0 s.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

WANTED_S = 1.0
ROOT = Path(__file__).resolve().parent.parent
CELL = ("--filter", "candidate=relu/torch_clamp", "--filter", "dtype=fp32")


def main() -> None:
    """Measure and print one row per sandbox."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sandbox", action="append", choices=("docker", "process"))
    parser.add_argument("--cells", type=int, default=10)
    parser.add_argument("--lock", help="images lock, where the image was adopted into another one")
    arguments = parser.parse_args()
    print(f"{'sandbox':10} {'cells':>5} {'median s':>9} {'max s':>7} {'start s':>8} {'wanted s':>9}")
    for sandbox in arguments.sandbox or ("docker", "process"):
        phases = measure(sandbox, arguments.cells, arguments.lock)
        overhead = [p["overhead"] for p in phases]
        start = statistics.median(p["start"] for p in phases)
        print(
            f"{sandbox:10} {len(overhead):5} {statistics.median(overhead):9.3f} {max(overhead):7.3f} {start:8.3f}"
            f" {WANTED_S:9.1f}"
        )


def measure(sandbox: str, cells: int, lock: str | None) -> list[dict[str, float]]:
    """``host.phases_s`` of ``cells`` attempts with ``sandbox``."""
    with tempfile.TemporaryDirectory(prefix="kernel-matrix-overhead-") as folder:
        command = (
            sys.executable,
            "-m",
            "kernel_matrix",
            "run",
            "matrix.toml",
            "--sandbox",
            sandbox,
            "--rerun",
            "all",
            *CELL,
        )
        place = ("--results", folder, *(("--lock", lock) if lock else ()))
        for _ in range(cells):
            subprocess.run((*command, *place), cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        records = sorted(Path(folder).glob("*/records/*.json"))
        return [json.loads(record.read_text())["host"]["phases_s"] for record in records]


if __name__ == "__main__":
    main()
