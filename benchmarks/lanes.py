"""A lane per GPU: whether two GPUs halve a queue, and whether neighbours disturb each other's times.

    python benchmarks/lanes.py [--cells 40] [--lock FILE]

Runs the same queue of cells twice with Docker: on the first GPU alone, then on every GPU of this machine at once.
Wanted, for two GPUs: at most 0.6 × the time; medians that agree with the one-GPU run within 0.5 %. Cells that ran on
the first GPU both times tell about neighbours; those that moved tell about the difference between two boards.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from runner.gpus import Gpu, vendor

ROOT = Path(__file__).resolve().parent.parent
WANTED_SHARE = 0.6
WANTED_AGREEMENT = 0.005
CANDIDATES = (
    *("adamw_step/triton_fused", "argmax/triton_row", "cross_entropy/triton_row", "cumsum/triton_scan"),
    *("embedding/triton_gather", "layer_norm/triton_row", "linear_gelu/triton_fused", "matmul/triton_tiled"),
    *("max_pool2d/triton_window", "relu/torch_clamp", "relu/triton_flat", "rms_norm/triton_row"),
    *("softmax/triton_row", "upsample_bilinear/triton_gather", "vector_add/triton_blocked"),
)
"""Correct candidates without a compiler run, so that a lane never waits for one."""
MATRIX = """\
name = "lanes"
dtypes = ["fp32", "fp16", "bf16"]
gpus = [{{ name = "gpu", {device} }}]
toolchains = [{{ name = "cu130", cuda = "13.0", torch = "2.11.0", triton = "3.6.0" }}]
problems = [{{ source = "folder", path = "{problems}", workloads = ["default"] }}]
candidates = [{{ select = {candidates} }}]

[protocol]
trials = 2
modes = ["standard"]
min_samples = 100
max_samples = 200
budget_s = 10
"""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=int, default=40)
    parser.add_argument("--lock", help="images lock, where the image was adopted into another one")
    arguments = parser.parse_args()
    gpus = vendor("nvidia").inventory().gpus
    alone_s, alone = queue(f'uuid = "{gpus[0].uuid}"', arguments)
    together_s, together = queue(f'model = "{gpus[0].name}"', arguments)
    print(f"{len(alone)} cells on one GPU: {alone_s:.1f} s; on {len(gpus)}: {together_s:.1f} s")
    print(f"share of the time: {together_s / alone_s:.3f} (wanted at most {WANTED_SHARE})")
    print(f"passed: {len(alone)} and {len(together)}; wanted agreement of medians: {WANTED_AGREEMENT:.1%}")
    report("same GPU, neighbour busy", alone, {k: v for k, v in together.items() if v[0] == gpus[0].uuid})
    report("other GPU", alone, {k: v for k, v in together.items() if v[0] != gpus[0].uuid})
    describe(gpus)


Medians = dict[str, tuple[str, float]]
"""Cell in words → UUID it ran on, and the candidate's median in nanoseconds."""


def queue(device: str, arguments: argparse.Namespace) -> tuple[float, Medians]:
    """Seconds that the queue took on the GPUs that ``device`` selects, and the medians of the cells that passed."""
    with tempfile.TemporaryDirectory(prefix="kernel-matrix-lanes-") as folder:
        matrix = Path(folder, "matrix.toml")
        chosen = json.dumps(list(CANDIDATES))
        matrix.write_text(MATRIX.format(device=device, problems=ROOT / "problems", candidates=chosen))
        command = (sys.executable, "-m", "runner")
        place = ("--engine", "docker", *(("--lock", arguments.lock) if arguments.lock else ()))
        plan = subprocess.run((*command, "plan", matrix, "--json", *place), cwd=ROOT, check=True, capture_output=True)
        cells = [cell["id"] for cell in json.loads(plan.stdout)["cells"] if cell["reason"] is None][: arguments.cells]
        ids = ("--filter", f"id={','.join(cells)}", "--results", folder)
        started = time.monotonic()
        subprocess.run((*command, "run", matrix, *place, *ids), cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        return time.monotonic() - started, medians(Path(folder))


def medians(folder: Path) -> Medians:
    """The kept device times of every record that passed."""
    found = {}
    for path in folder.glob("*/records/*.json"):
        record = json.loads(path.read_text())
        if record["outcome"]["status"] == "passed":
            blocks = record["sessions"][0]["workloads"][0]["blocks"]
            times = [t for b in blocks if b["role"] == "candidate" for t in b["device_ns"]]
            cell = f"{record['cell']['candidate']} {record['cell']['dtype']}"
            found[cell] = (record["host"]["device"]["uuid"], statistics.median(times))
    return found


def report(title: str, alone: Medians, together: Medians) -> None:
    """How far the medians moved."""
    moved = sorted((abs(together[c][1] / alone[c][1] - 1), c) for c in together if c in alone)
    if not moved:
        print(f"{title}: no cell")
        return
    within = sum(share <= WANTED_AGREEMENT for share, _ in moved)
    print(f"{title}: {len(moved)} cells, {within} within; median {moved[len(moved) // 2][0]:.3%}, largest:")
    for share, cell in moved[-4:]:
        print(f"    {share:.3%}  {cell}  {alone[cell][1] / 1e3:.1f} → {together[cell][1] / 1e3:.1f} µs")


def describe(gpus: tuple[Gpu, ...]) -> None:
    print(", ".join(f"{gpu.name} (driver {gpu.driver})" for gpu in gpus))


if __name__ == "__main__":
    main()
