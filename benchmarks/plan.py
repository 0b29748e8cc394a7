"""One million cells: how long a plan of them takes and how much memory.

``python benchmarks/plan.py [--problems N] [--json]`` plans a synthetic matrix in a fresh process, iterates every cell
with its id and reason, counts totals, and prints wall time, CPU time and the peak of the process's resident memory.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

from kernel_matrix.matrix import CandidateSet, Exclude, GpuAxis, Match, Matrix, Override, ProblemSet, Toolchain
from kernel_matrix.model.enums import Dtype, Language
from kernel_matrix.plan import HostInventory, load_selection, make_plan, tally
from kernel_matrix.platforms import Gpu
from kernel_matrix.sources import Candidate, LoadedSource, Problem, Workload

LIMIT_S = 5.0
LIMIT_BYTES = 1 << 30
"""What a plan of one million cells may cost."""

GPUS, TOOLCHAINS, DTYPES, CANDIDATES = 10, 5, 4, 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problems", type=int, default=250, help="250 problems make one million cells")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        print(json.dumps(plan_all(options.problems)))
    else:
        report(measure(options.problems), as_json=options.json)


def measure(problems: int) -> dict[str, float]:
    """Plan in a child process, so that its peak of memory is the plan's own."""
    started = time.perf_counter()
    child = subprocess.run(
        (sys.executable, __file__, "--inside", "--problems", str(problems)), check=True, capture_output=True, text=True
    )
    wall_s = time.perf_counter() - started
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        **json.loads(child.stdout),
        "process_wall_s": wall_s,
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "peak_bytes": usage.ru_maxrss * 1024,  # Linux counts in KiB
    }


def report(figures: dict[str, float], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(figures, indent=2, sort_keys=True))
        return
    print(f"{figures['cells']:,} cells, {figures['runnable']:,} runnable, {figures['reasons']} distinct reasons")
    print(f"select and plan   {figures['plan_s']:6.2f} s")
    print(f"iterate and count {figures['iterate_s']:6.2f} s")
    print(f"whole process     {figures['process_wall_s']:6.2f} s (limit {LIMIT_S:g}), {figures['cpu_s']:.2f} s of CPU")
    print(f"peak memory       {figures['peak_bytes'] / 2**20:6.0f} MiB (limit {LIMIT_BYTES >> 20})")


def plan_all(problems: int) -> dict[str, float]:
    """Select, plan, iterate and count."""
    matrix, loaded, facts = synthetic(problems)
    started = time.perf_counter()
    plan = make_plan(matrix, load_selection(matrix, load=lambda _name, _root: loaded), facts)
    planned = time.perf_counter()
    totals = tally(plan.cells())
    done = time.perf_counter()
    return {
        "cells": totals.all.cells,
        "runnable": totals.all.runnable,
        "reasons": len(totals.reasons),
        "plan_s": planned - started,
        "iterate_s": done - planned,
    }


def synthetic(problems: int) -> tuple[Matrix, LoadedSource, HostInventory]:
    """Return a matrix with rules of every kind, its problems and candidates, and a host that has half of its GPUs."""
    models = [f"NVIDIA G{n}" for n in range(GPUS)]
    capabilities = ["7.0", "7.5", "8.0", "8.6", "8.9", "9.0", "9.0", "10.0", "10.3", "12.0"]
    versions = [("12.1", "2.5.1"), ("12.4", "2.6.0"), ("12.6", "2.9.1"), ("12.8", "2.9.1"), ("13.0", "2.11.0")]
    matrix = Matrix(
        name="million",
        path=Path(__file__),
        gpus=tuple(
            GpuAxis(name=f"g{n}", model=model, compute_capability=capabilities[n]) for n, model in enumerate(models)
        ),
        toolchains=tuple(
            Toolchain(name=f"cu{cuda}", cuda=cuda, torch=torch, triton="3.5.1") for cuda, torch in versions
        ),
        dtypes=tuple(Dtype),
        problems=(ProblemSet(source="folder", path=Path(__file__).parent),),
        candidates=(CandidateSet(),),
        exclude=(
            Exclude(match=Match(gpu=("g1",), dtype=("fp64",)), reason="too slow to be of interest"),
            Exclude(match=Match(candidate=("*/c7",), toolchain=("cu13.0",)), reason="known to hang"),
        ),
        overrides=(Override(match=Match(problem=("*0",)), protocol={"budget_s": 60.0}),),
    )
    facts = HostInventory(
        gpus=tuple(
            Gpu(platform="cuda", uuid=f"GPU-{n}", name=models[n], compute_capability=capabilities[n], driver="570.26")
            for n in range(0, GPUS, 2)
        ),
        sandbox="docker",
        uses_images=True,
        images={toolchain.name: "" for toolchain in matrix.toolchains[1:]},
    )
    return matrix, _shelf(problems), facts


def _shelf(problems: int) -> LoadedSource:
    languages, dtypes = tuple(Language), tuple(Dtype)
    shelf = [
        Problem(
            id=f"level{n % 3}/p{n}",
            source="folder",
            path=Path(f"p{n}.py"),
            category=f"category{n % 15}",
            dtypes=dtypes if n % 2 else dtypes[:3],
            workloads=(Workload(name="smoke"), Workload(name="default")),
            digest=f"{n:064x}",
        )
        for n in range(problems)
    ]
    candidates = [
        Candidate(
            id=f"{problem.id}/c{n}",
            problem_id=problem.id,
            path=Path(f"c{n}.py"),
            language=languages[n % 3],
            digest=f"{problem.digest}{n}",
        )
        for problem in shelf
        for n in range(CANDIDATES)
    ]
    return LoadedSource(problems=tuple(shelf), candidates=tuple(candidates))


if __name__ == "__main__":
    main()
