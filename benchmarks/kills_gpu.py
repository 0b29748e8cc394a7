"""What a runner that is killed leaves on a GPU: SIGKILL at any moment of a cell in containers, and nobody who sweeps.

    python benchmarks/kills_gpu.py [--kills 10] [--lock FILE] [--environment auto --sandbox process]

The runner of one cell of all operators in ``operators`` is killed. Prints after how many seconds the processes of its
cell had ended and the GPU's memory was free again, the longest last, and what is left.
Wanted: no process and no container that runs 60 s after the end.
"""

from __future__ import annotations

import random
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pynvml
from gpu_runs import command, operators_matrix, parser, sandbox_of, working_folder

LIMIT_S = 60.0
NOISE_BYTES = 64 << 20
"""Memory of the GPU that may be in use without any process of ours."""


def main() -> None:
    """Kill, wait, and print a line per kill and one about all."""
    made = parser(__doc__)
    made.add_argument("--kills", type=int, default=10)
    made.set_defaults(candidate="two_percent_slower", sessions=1)
    arguments = made.parse_args()
    pynvml.nvmlInit()
    with working_folder(arguments) as folder:
        matrix = folder / "matrix.toml"
        matrix.write_text(operators_matrix("kills", arguments, "budget_s = 2\n"))
        argv = (*command(matrix, folder / "results", arguments.lock, sandbox_of(arguments)), "--rerun", "all")
        kill_often(argv, arguments.kills)


def kill_often(argv: tuple[str | Path, ...], kills: int) -> None:
    """Kill runners of the cell at moments drawn over its whole time."""
    device = pynvml.nvmlDeviceGetHandleByIndex(0)
    before = pynvml.nvmlDeviceGetMemoryInfo(device).used
    began = time.monotonic()
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
    whole_s = time.monotonic() - began
    print(f"the cell takes {whole_s:.1f} s; {before >> 20} MiB of the GPU are in use without it")
    dice = random.Random(0)  # the same moments in each run
    took = []
    for _ in range(kills):
        with subprocess.Popen(argv, stdout=subprocess.DEVNULL) as runner:
            time.sleep(dice.uniform(0.3, 0.95) * whole_s)
            ran = running()
            used = pynvml.nvmlDeviceGetMemoryInfo(device).used - before
            runner.send_signal(signal.SIGKILL)
        killed = time.monotonic()
        while running() or pynvml.nvmlDeviceGetMemoryInfo(device).used - before > NOISE_BYTES:
            if time.monotonic() - killed > LIMIT_S:
                break
            time.sleep(0.02)
        took.append(time.monotonic() - killed)
        print(f"{ran} processes, {used >> 20} MiB; ended after {took[-1]:.2f} s; left: {running()}", flush=True)
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
    print(f"{len(took)} kills, ended after {sorted(took)[len(took) // 2]:.2f} s (median), {max(took):.2f} s (longest)")


def running() -> int:
    """Return how many processes of roles run on this machine, in containers or not."""
    found = 0
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has just ended
            found += b"kernel_matrix.inside." in path.read_bytes()
    return found


if __name__ == "__main__":
    main()
