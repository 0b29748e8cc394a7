"""How soon a service answers when it is idle, and how many candidates an hour it judges from a queue.

    python benchmarks/service_gpu.py [--queue 1000] [--idle 40] [--pause 6] [--tier quick] [--environment auto]
    python benchmarks/service_gpu.py --platform cpu --tier values --environment auto

Triton candidates of ten problems are sent, each with a comment that makes it another one. Those for the idle service
are compiled before; those of the queue are not. Between two of an idle service there is a pause, in which it starts
processes for the next; without it, the answer takes as much longer as importing PyTorch does. Prints a line for each
part; of the queue also the rate without its first quarter, since compilers begin when it is sent.
Wanted, a GPU with ``quick``: at least 1,200 an hour; idle, 4 s at the median and 8 s for 95 of 100. A CPU of two cores
with ``values``: at least 1,000 an hour.
"""

from __future__ import annotations

import argparse
import random
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import requests
from gpu_runs import ROOT, cpu_head, head, parser, sandbox_of, working_folder

from kernel_matrix.model.instants import parse_instant

KERNELS = (
    *("softmax/triton_row", "layer_norm/triton_row", "rms_norm/triton_row", "cross_entropy/triton_row"),
    *("gelu_tanh/triton_flat", "swiglu/triton_blocked", "cumsum/triton_scan", "vector_add/triton_blocked"),
    *("matmul/triton_tiled", "masked_softmax/triton_row"),
)
LOOK_S = 0.05


def main() -> None:
    """Serve, measure both, and print."""
    made = parser(__doc__)
    made.add_argument("--queue", type=int, default=1000, help="candidates in the queue")
    made.add_argument("--idle", type=int, default=40, help="candidates for the idle service")
    made.add_argument("--pause", type=float, default=6.0, help="seconds between two candidates of the idle service")
    made.add_argument("--tier", default="quick")
    made.add_argument("--platform", default="cuda", choices=("cuda", "cpu"))
    arguments = made.parse_args()
    with working_folder(arguments) as folder, serving(folder, arguments) as address:
        session = requests.Session()
        idle = [candidate(number, arguments.tier) for number in range(arguments.idle)]
        # Another tier compiles the same, and is another evaluation.
        other = "quick" if arguments.tier == "values" else "values"
        wait(session, address, submit(session, address, [{**one, "tier": other} for one in idle]))
        time.sleep(arguments.pause)
        random.Random(0).shuffle(idle)  # the same order in each run
        told("idle", measure_idle(session, address, idle, arguments.pause))
        queued = [candidate(arguments.idle + number, arguments.tier) for number in range(arguments.queue)]
        began = time.monotonic()
        ended = wait(session, address, submit(session, address, queued))
        took_s = time.monotonic() - began
        statuses = Counter(one["result"]["status"] for one in ended)
        print(f"queue: {len(ended)} in {took_s:.0f} s, {3600 * len(ended) / took_s:.0f} an hour; {dict(statuses)}")
        ends_s = sorted(parse_instant(one["ended_at"]).timestamp() for one in ended)[len(ended) // 4 :]
        print(f"queue, without its first quarter: {3600 * (len(ends_s) - 1) / (ends_s[-1] - ends_s[0]):.0f} an hour")


def measure_idle(
    session: requests.Session, address: str, candidates: Sequence[Any], pause_s: float
) -> list[tuple[bool, float]]:
    """Return, for each candidate, whether the one before was of the same problem, and the seconds to the answer."""
    found, before = [], ""
    for one in candidates:
        began = time.monotonic()
        wait(session, address, submit(session, address, [one]))
        found.append((one["problem"] == before, time.monotonic() - began))
        before = one["problem"]
        time.sleep(pause_s)
    return found


def told(what: str, found: Sequence[tuple[bool, float]]) -> None:
    """Print the median and the 95th percentile, of all and by whether the problem stayed the same."""
    for kind, times in (
        ("all", [s for _, s in found]),
        ("same problem", [s for same, s in found if same]),
        ("another problem", [s for same, s in found if not same]),
    ):
        if len(times) > 1:
            last = statistics.quantiles(times, n=20)[-1]
            print(f"{what}, {kind}: n = {len(times)}, p50 = {statistics.median(times):.2f} s, p95 = {last:.2f} s")


def candidate(number: int, tier: str) -> dict[str, str]:
    """Return the request for a candidate that is like no other."""
    problem, _, name = KERNELS[number // 2 % len(KERNELS)].partition("/")
    source = (ROOT / "problems" / problem / "candidates" / f"{name}.py").read_text()
    return {"problem": problem, "source": f"{source}\n# Number {number}.\n", "tier": tier}


def submit(session: requests.Session, address: str, wanted: Sequence[Any]) -> list[str]:
    """Send evaluations; return their ids."""
    ids = []
    for first in range(0, len(wanted), 1000):
        sent = session.post(f"{address}/evaluations/batch", json={"evaluations": wanted[first : first + 1000]})
        if not sent.ok:
            raise SystemExit(sent.text)
        ids += [one["id"] for one in sent.json()["evaluations"]]
    return ids


def wait(session: requests.Session, address: str, ids: Sequence[str]) -> list[Any]:
    """Return the evaluations when all have ended."""
    found = []
    for id_ in ids:
        while True:
            one = session.get(f"{address}/evaluations/{id_}").json()
            if one.get("state") == "ended":
                found.append(one)
                break
            time.sleep(LOOK_S)
    return found


@contextmanager
def serving(folder: Path, arguments: argparse.Namespace) -> Iterator[str]:
    """Serve a matrix of the ten problems; provides the address."""
    matrix = folder / "matrix.toml"
    matrix.write_text(matrix_text(arguments))
    place = ("--sandbox", sandbox_of(arguments), "--results", folder / "results", "--port", "0")
    lock = ("--lock", arguments.lock) if arguments.lock else ()
    argv = (sys.executable, "-m", "kernel_matrix", "serve", matrix, *place, *lock)
    with subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True) as service:
        assert service.stdout is not None
        try:
            yield service.stdout.readline().split()[1].rstrip(";")
        finally:
            service.terminate()


def matrix_text(arguments: argparse.Namespace) -> str:
    """Return a matrix of the ten problems, on a GPU in their usual shapes, on a CPU in small ones."""
    names = ", ".join(f'"{name.partition("/")[0]}"' for name in KERNELS)
    lines = [cpu_head("service") if arguments.platform == "cpu" else head("service", arguments)]
    workloads = "default" if arguments.platform == "cuda" else "smoke"
    lines += (
        *("[[problems]]", 'source = "folder"', f'path = "{ROOT}/problems"', f"select = [{names}]"),
        *(f'workloads = "{workloads}"', "[[candidates]]", 'select = "*/@reference"'),
    )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
