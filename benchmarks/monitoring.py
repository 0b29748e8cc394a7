"""What telemetry costs a kernel: a kernel of about 1 ms, timed with the watch on and off, interleaved.

    python benchmarks/monitoring.py [--rounds 30] [--calls 300]

One process runs the kernel and times each call with device events; this one looks at the GPU as a lease does, twenty
times a second, or does not, in the order off, on, on, off. Wanted: the median of a 1 ms kernel grows by at most 0.1 %.
Needs an NVIDIA GPU and torch, nothing else on the GPU.
"""

from __future__ import annotations

import argparse
import math
import statistics
import subprocess
import sys
from contextlib import nullcontext

from kernel_matrix.lease.gpu_processes import OwnProcesses
from kernel_matrix.lease.watch import DeviceWatch
from kernel_matrix.platforms.registry import get_platform

WANTED = 0.001
KERNEL = """
import statistics, sys, torch
KINDS = {
    "memory": lambda n: (torch.zeros(n * n, device="cuda"), lambda x: x.add_(1)),
    "matmul": lambda n: (torch.zeros(n, n, device="cuda", dtype=torch.bfloat16), lambda x: x @ x),
}
def times(call, x, calls):
    ends = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(calls)]
    for begin, end in ends:
        begin.record(); call(x); end.record()
    torch.cuda.synchronize()
    return [1000 * begin.elapsed_time(end) for begin, end in ends]
def sized(kind):
    # The size whose time is nearest to 1 ms, by steps of 5 %.
    n = 1024
    while True:
        x, call = KINDS[kind](n)
        times(call, x, 20)
        if statistics.median(times(call, x, 20)) > 1000:
            return x, call
        n = int(n * 1.05) // 64 * 64 + 64
x, call = sized(sys.argv[1])
times(call, x, 2000)
print("ready", flush=True)
for line in sys.stdin:
    print(statistics.median(times(call, x, int(line))), flush=True)
"""


def main() -> None:
    """Measure and print one row per kernel."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--calls", type=int, default=300)
    arguments = parser.parse_args()
    print(f"{'kernel':8} {'off µs':>9} {'on µs':>9} {'change':>9} {'95 % ±':>8} {'looks':>6} {'look µs':>8}  wanted")
    for kind in ("memory", "matmul"):
        measure(kind, arguments.rounds, arguments.calls)


def measure(kind: str, rounds: int, calls: int) -> None:
    nvidia = get_platform("cuda")
    gpu = nvidia.inventory().gpus[0]
    pipe = subprocess.PIPE
    with (
        nvidia.opened(),
        subprocess.Popen((sys.executable, "-c", KERNEL, kind), stdin=pipe, stdout=pipe, text=True) as kernel,
    ):
        assert kernel.stdin is not None
        assert kernel.stdout is not None
        kernel.stdout.readline()
        watch = DeviceWatch(gpu, OwnProcesses())
        off: list[float] = []
        on: list[float] = []
        cpu_s = 0.0
        for watched in (False, True, True, False) * rounds:
            with watch.running() if watched else nullcontext():
                kernel.stdin.write(f"{calls}\n")
                kernel.stdin.flush()
                (on if watched else off).append(float(kernel.stdout.readline()))
            cpu_s += watch.cpu_s if watched else 0  # of the thread that has just ended
        kernel.stdin.close()
    changes = [b / a - 1 for a, b in zip(off, on, strict=True)]
    half = 1.96 * statistics.stdev(changes) / math.sqrt(len(changes))
    change = statistics.fmean(changes)
    cost_us = cpu_s / max(1, len(watch.snapshots)) * 1e6
    print(
        f"{kind:8} {statistics.median(off):9.2f} {statistics.median(on):9.2f} {change:+9.4%} {half:8.4%}"
        f" {len(watch.snapshots):6} {cost_us:8.1f}  at most {WANTED:+.1%}"
    )


if __name__ == "__main__":
    main()
