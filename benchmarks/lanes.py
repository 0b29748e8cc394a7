"""A lane per GPU: whether two GPUs halve a queue, and whether neighbours disturb each other's times.

    python benchmarks/lanes.py [alone|together] [--cells 40] [--lock FILE] [--folder FOLDER]

Runs the same queue of cells twice with Docker: on the first GPU alone, then on every GPU of this machine at once.
Where a machine is lent for minutes only, each queue can be run by its own command, with one folder for both.
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

import gpu_runs

from kernel_matrix.model.enums import Role, Status
from kernel_matrix.platforms import Gpu
from kernel_matrix.platforms.registry import get_platform

WANTED_SHARE = 0.6
WANTED_AGREEMENT = 0.005
SECONDS = "seconds.txt"
"""In the folder of a queue that was run: how long it took."""
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
{toolchain}
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
    parser.add_argument("queue", nargs="?", choices=("alone", "together"), help="the one queue to run; default: both")
    parser.add_argument("--cells", type=int, default=40)
    parser.add_argument("--lock", help="images lock, where the image was adopted into another one")
    parser.add_argument("--folder", type=Path, help="where records go; default: one that is removed")
    arguments = parser.parse_args()
    gpus = get_platform("cuda").inventory().gpus
    devices = {"alone": f'uuid = "{gpus[0].uuid}"', "together": f'model = "{gpus[0].name}"'}
    with tempfile.TemporaryDirectory(prefix="kernel-matrix-lanes-") as temporary:
        folder = (arguments.folder or Path(temporary)).resolve()
        for name in (arguments.queue,) if arguments.queue else devices:
            seconds = run_queue(devices[name], folder / name, arguments.cells, arguments.lock)
            print(f"{name}: {len(medians(folder / name))} cells passed in {seconds:.1f} s", flush=True)
        if all((folder / name / SECONDS).exists() for name in devices):
            compare(gpus, folder)


def compare(gpus: tuple[Gpu, ...], folder: Path) -> None:
    """Print how the two queues under ``folder`` agree."""
    alone_s, together_s = (float((folder / name / SECONDS).read_text()) for name in ("alone", "together"))
    alone, together = medians(folder / "alone"), medians(folder / "together")
    print(f"{len(alone)} cells on one GPU: {alone_s:.1f} s; {len(together)} on {len(gpus)}: {together_s:.1f} s")
    print(f"share of the time: {together_s / alone_s:.3f} (wanted at most {WANTED_SHARE})")
    print(f"wanted agreement of medians: {WANTED_AGREEMENT:.1%}")
    report("same GPU, neighbour busy", alone, {k: v for k, v in together.items() if v[0] == gpus[0].uuid})
    report("other GPU", alone, {k: v for k, v in together.items() if v[0] != gpus[0].uuid})
    print(", ".join(f"{gpu.name} (driver {gpu.driver})" for gpu in gpus))


Medians = dict[str, tuple[str, float]]
"""Cell in words → UUID it ran on, and the candidate's median in nanoseconds."""


def run_queue(device: str, folder: Path, cells: int, lock: str | None) -> float:
    """Run the queue on the GPUs that ``device`` selects, records into ``folder``; the seconds it took."""
    folder.mkdir(parents=True)
    matrix = folder / "matrix.toml"
    matrix.write_text(_matrix(device))
    place = ("--sandbox", "docker", *(("--lock", lock) if lock else ()))
    planned = (sys.executable, "-m", "kernel_matrix", "plan", matrix, "--json", *place)
    plan = subprocess.run(planned, cwd=gpu_runs.ROOT, check=True, capture_output=True)
    chosen = [cell["id"] for cell in json.loads(plan.stdout)["cells"] if cell["reason"] is None][:cells]
    command = (*gpu_runs.command(matrix, folder, lock), "--filter", f"id={','.join(chosen)}")
    started = time.monotonic()
    subprocess.run(command, cwd=gpu_runs.ROOT, check=True, stdout=subprocess.DEVNULL)
    seconds = time.monotonic() - started
    (folder / SECONDS).write_text(str(seconds))
    return seconds


def _matrix(device: str) -> str:
    problems, candidates = gpu_runs.ROOT / "problems", json.dumps(list(CANDIDATES))
    return MATRIX.format(
        device=device, toolchain=f"toolchains = [{gpu_runs.IMAGE}]", problems=problems, candidates=candidates
    )


def medians(folder: Path) -> Medians:
    """Return the kept device times of every record that passed."""
    found = {}
    for record in gpu_runs.records(folder):
        if record.outcome.status is Status.PASSED:
            blocks = record.sessions[0].workloads[0].blocks
            times = [t for block in blocks if block.role is Role.CANDIDATE for t in block.kept_ns]
            cell = f"{record.cell.candidate} {record.cell.dtype.value}"
            found[cell] = (record.host.device["uuid"], statistics.median(times))
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


if __name__ == "__main__":
    main()
