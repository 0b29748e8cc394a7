"""How long the process sandbox takes to pause a candidate and to let it run on, beside many other processes.

    python benchmarks/pauses.py [--processes 800] [--lanes 1 4] [--times 30]

A session has some forty pauses, and a host with a GPU has hundreds of processes of its kernel alone. Wanted: 2 ms.
"""

from __future__ import annotations

import argparse
import subprocess
import threading
import time
from contextlib import ExitStack
from statistics import median

from kernel_matrix.hosts.process_token import owner_token
from kernel_matrix.model.enums import Role
from kernel_matrix.sandboxes import ProcessLabels, RoleSpec
from kernel_matrix.sandboxes.process import ProcessSandbox

APART_S = 0.02
"""Time between a pause and the next one."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=800, help="other processes of the machine")
    parser.add_argument("--lanes", type=int, nargs="+", default=(1, 4), help="candidates that are paused at once")
    parser.add_argument("--times", type=int, default=30, help="pauses per candidate")
    arguments = parser.parse_args()
    sandbox = ProcessSandbox()
    with ExitStack() as stack:
        for _ in range(arguments.processes):
            other = stack.enter_context(subprocess.Popen(("sleep", "infinity")))  # a constant
            stack.callback(other.kill)
        for lanes in arguments.lanes:
            print(line(lanes, measure(sandbox, lanes, arguments.times)), flush=True)


def measure(sandbox: ProcessSandbox, lanes: int, times: int) -> list[tuple[float, float]]:
    """Return the seconds of each pause, and of letting the candidate run on after it."""
    found: list[tuple[float, float]] = []

    def lane() -> None:
        with sandbox.launch(waiting()) as running:
            for _ in range(times):
                time.sleep(APART_S)
                started = time.perf_counter()
                running.pause()
                paused = time.perf_counter()
                running.resume()
                found.append((paused - started, time.perf_counter() - paused))

    threads = [threading.Thread(target=lane) for _ in range(lanes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def waiting() -> RoleSpec:
    """Return a candidate that does nothing."""
    labels = ProcessLabels(run_id="pauses", cell_id="pauses", session=0, gpu_uuid="cpu", owner=owner_token())
    sleep = ("-n", "1", "-r", "1", "import time; time.sleep(3600)")
    return RoleSpec(role=Role.CANDIDATE, labels=labels, image=None, module="timeit", args=sleep)


def line(lanes: int, found: list[tuple[float, float]]) -> str:
    """Return a line of the table."""
    pauses, resumes = zip(*found, strict=True)
    return (
        f"{lanes} at once: a pause takes {median(pauses) * 1e3:.2f} ms ({max(pauses) * 1e3:.2f} at most), "
        f"letting it run on {median(resumes) * 1e3:.2f} ms"
    )


if __name__ == "__main__":
    main()
