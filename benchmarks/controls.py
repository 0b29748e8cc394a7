"""The controls of every problem of a collection on a GPU: which load, and pass them, or are flagged, and why.

    python benchmarks/controls.py --source kernelbench --path KernelBench --select 'level1/*' 'level2/*' [--jobs 3]

What ``kernel-matrix problems try`` does on a CPU, with full-sized workloads on the first GPU, which ought to be idle:
each problem's reference is held against itself in another process, against zeros, a constant, and the answer to other
inputs. Nothing is timed. The process is a local one, so only for collections that are trusted.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import json
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from runner.cell.checkup import Subject, staged  # noqa: E402  # as above
from runner.core.checkup import ORDERS_NAME, SOCKET_NAME, Orders, Task, Tried  # noqa: E402
from runner.core.messages import dumps, from_json  # noqa: E402
from runner.core.vocab import Dtype, Status  # noqa: E402
from runner.sources import load_source  # noqa: E402

ADDRESSES = 1 << 46
"""Address space that a process may take: a driver maps all of the GPU's memory and more."""


def main() -> None:
    """Try, and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", default="kernelbench")
    parser.add_argument("--path", type=Path)
    parser.add_argument("--select", nargs="*", default=["*"], metavar="GLOB")
    parser.add_argument("--jobs", type=int, default=3)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--limit", type=float, default=120.0, help="seconds per problem")
    arguments = parser.parse_args()
    loaded = load_source(arguments.source, arguments.path)
    chosen = [p for p in loaded.problems if any(fnmatch.fnmatch(p.id, glob) for glob in arguments.select)]
    subjects = [Subject(problem=p, workload=p.workloads[0], dtype=Dtype.FP32) for p in chosen]
    with tempfile.TemporaryDirectory(prefix="km-", dir="/tmp") as name:  # a socket's path must be short
        work = Path(name)
        tasks, lost = staged(subjects, work)
        on_gpu = [replace(task, job=replace(task.job, device=arguments.device)) for task in tasks]
        started = time.monotonic()
        answers = list(lost)
        with contextlib.suppress(KeyboardInterrupt):  # what is known by then is told
            answers.extend(tried(on_gpu, work, arguments.jobs, arguments.limit))
        tell(subjects, answers, time.monotonic() - started)


def tried(tasks: Sequence[Task], work: Path, jobs: int, limit_s: float) -> Iterator[Tried]:
    """The answers of one process; fewer than ``tasks`` where it ends early."""
    (work / ORDERS_NAME).write_text(dumps(Orders(tuple(tasks), jobs, limit_s, ADDRESSES)))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(work / SOCKET_NAME))
        listener.listen()
        argv = (sys.executable, "-m", "runner.core.checkup", "--work", work, "--channel", work)
        with subprocess.Popen(argv, cwd=ROOT) as process, listener.accept()[0].makefile("rb") as lines:
            try:
                next(lines)
                for line, _task in zip(lines, tasks, strict=False):
                    yield from_json(Tried, json.loads(line))
            finally:
                process.terminate()


def tell(subjects: Sequence[Subject], answers: Sequence[Tried], seconds: float) -> None:
    for answer in sorted(answers, key=lambda one: subjects[one.index].problem.id):
        if answer.status is not Status.PASSED or answer.labels:
            told = " ".join((answer.status.value, *answer.labels, answer.reason))
            print(f"{subjects[answer.index].problem.id:50} {answer.seconds:6.1f} s  {told[:150]}")
    counts = Counter(answer.status.value for answer in answers)
    silent = len(subjects) - len(answers)
    print(f"{len(subjects)} problems in {seconds:.0f} s: {dict(counts)}; without an answer: {silent}")


if __name__ == "__main__":
    main()
