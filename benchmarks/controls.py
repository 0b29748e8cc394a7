"""The controls of every problem of a collection on a GPU: which load, and pass them, or are flagged, and why.

    python benchmarks/controls.py --source kernelbench --path KernelBench --select 'level1/*' 'level2/*' [--jobs 3]

What ``kernel-matrix problems try`` does on a CPU, with full-sized workloads on the first GPU, which ought to be idle:
each problem's reference is held against itself in another process, against zeros, a constant, and the answer to other
inputs. Nothing is timed. The process is a local one, so only for collections that are trusted.

With ``--device cpu --cap 32`` no size that a file's constants name is larger than 32 and the file's own arithmetic
follows from these: for machines on which the full sizes do not fit. What is too small then to be a problem is tried
again with twice the size.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import fnmatch
import json
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from kernel_matrix.attempt.problem_checks import ProblemCheckSubject, stage_problem  # noqa: E402  # as above
from kernel_matrix.inside.problem_check.job import (  # noqa: E402
    ProblemCheckJob,
    ProblemCheckLimits,
    ProblemCheckResult,
)
from kernel_matrix.inside.problem_check.pool import JOB_NAME, SOCKET_NAME  # noqa: E402
from kernel_matrix.model.enums import Dtype, Status  # noqa: E402
from kernel_matrix.model.messages import dumps, from_json  # noqa: E402
from kernel_matrix.sources import load_source  # noqa: E402

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
    parser.add_argument("--cap", type=int, default=0, help="largest size that a constant may name; 0: as it is")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds per problem")
    arguments = parser.parse_args()
    loaded = load_source(arguments.source, arguments.path)
    chosen = [p for p in loaded.problems if any(fnmatch.fnmatch(p.id, glob) for glob in arguments.select)]
    subjects = [ProblemCheckSubject(problem=p, workload=p.workloads[0], dtype=Dtype.FP32) for p in chosen]
    started = time.monotonic()
    answers = try_all([capped(one, arguments.cap) for one in subjects], arguments)
    if arguments.cap:
        again = [index for index, answer in answers.items() if answer.status is not Status.PASSED]
        larger = try_all([capped(subjects[index], 2 * arguments.cap) for index in again], arguments)
        answers |= {again[place]: answer for place, answer in larger.items()}
    tell(subjects, answers, time.monotonic() - started)


def try_all(subjects: Sequence[ProblemCheckSubject], arguments: argparse.Namespace) -> dict[int, ProblemCheckResult]:
    """Place among ``subjects`` → its answer, of as many as were tried before somebody interrupted."""
    with tempfile.TemporaryDirectory(prefix="km-", dir="/tmp") as name:  # a socket's path must be short
        work = Path(name)
        jobs = [stage_problem(str(index), subject, work) for index, subject in enumerate(subjects)]
        on_device = [replace(job, device=arguments.device) for job in jobs]
        limits = ProblemCheckLimits(jobs=arguments.jobs, limit_s=arguments.limit, memory_bytes=ADDRESSES)
        answers: list[ProblemCheckResult] = []
        with contextlib.suppress(KeyboardInterrupt):  # what is known by then is told
            answers.extend(tried(ProblemCheckJob(tuple(on_device), limits), work))
    return {int(answer.cell_id): answer for answer in answers}


def capped(subject: ProblemCheckSubject, cap: int) -> ProblemCheckSubject:
    """``subject`` with every whole constant of its file that is larger than ``cap`` made equal to it.

    Constants that the file computes from others follow.
    """
    if not cap:
        return subject
    tree = ast.parse(subject.problem.path.read_text(encoding="utf-8"))
    before = constants_of(tree)
    for node in tree.body:
        if isinstance(node, ast.Assign) and not any(isinstance(part, ast.Name) for part in ast.walk(node.value)):
            value = before.get(target_of(node))
            if value is not None:
                node.value = ast.parse(repr(lesser(value, cap)), mode="eval").body
    after = constants_of(tree)
    values = {name: value for name, value in after.items() if value != before[name]}
    return replace(subject, workload=replace(subject.workload, values=values))


def lesser(value: Any, cap: int) -> Any:
    """``value``, or ``cap`` where that is less; of a tuple each element."""
    if isinstance(value, tuple):
        return tuple(lesser(one, cap) for one in value)
    return min(value, cap) if isinstance(value, int) else value


def constants_of(tree: ast.Module) -> dict[str, Any]:
    """Whole numbers, and tuples of them, that the file's top level assigns."""
    found: dict[str, Any] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and target_of(node):
            with contextlib.suppress(Exception):  # what needs more than constants is none
                code = compile(ast.Expression(node.value), "<constant>", "eval")
                found[target_of(node)] = eval(code, {"__builtins__": {}}, dict(found))  # of trusted files
    return {name: value for name, value in found.items() if isinstance(value, (int, tuple))}


def target_of(node: ast.Assign) -> str:
    """Return the one assigned name; empty for any other statement."""
    target = node.targets[0]
    return target.id if len(node.targets) == 1 and isinstance(target, ast.Name) else ""


def tried(job: ProblemCheckJob, work: Path) -> Iterator[ProblemCheckResult]:
    """Yield the answers of one process; fewer than there are problems if it ends early."""
    (work / JOB_NAME).write_text(dumps(job))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(work / SOCKET_NAME))
        listener.listen()
        argv = (sys.executable, "-m", "kernel_matrix.inside.problem_check.pool", "--work", work, "--channel", work)
        with subprocess.Popen(argv, cwd=ROOT) as process, listener.accept()[0].makefile("rb") as lines:
            try:
                next(lines)
                for line, _problem in zip(lines, job.problems, strict=False):
                    yield from_json(ProblemCheckResult, json.loads(line))
            finally:
                process.terminate()


def tell(subjects: Sequence[ProblemCheckSubject], answers: Mapping[int, ProblemCheckResult], seconds: float) -> None:
    """One line per problem of which there is something to say, and how many ended how."""
    for index, answer in sorted(answers.items(), key=lambda pair: subjects[pair[0]].problem.id):
        if answer.status is not Status.PASSED or answer.labels:
            told = " ".join((answer.status.value, *answer.labels, answer.reason))
            print(f"{subjects[index].problem.id:50} {answer.seconds:6.1f} s  {told[:150]}")
    counts = Counter(answer.status.value for answer in answers.values())
    silent = len(subjects) - len(answers)
    print(f"{len(subjects)} problems in {seconds:.0f} s: {dict(counts)}; without an answer: {silent}")


if __name__ == "__main__":
    main()
