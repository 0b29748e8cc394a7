"""How often rankings are right: ceilings and regret of candidates with a known order, and coverage of intervals of PP.

``python benchmarks/rankings.py [--pages N] [--seed N] [--json]`` draws session medians of candidates on several GPUs,
and asks ``ranks`` and ``portability`` as ``kernel-matrix analyze`` does. ``--cells N`` measures the time that both
questions take on a table of N cells instead.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Final

import numpy as np
import polars as pl

from kernel_matrix.analysis.portability import portability
from kernel_matrix.analysis.questions import QuestionOptions
from kernel_matrix.analysis.ranks import ranks
from kernel_matrix.analysis.tables import Tables
from kernel_matrix.results.schema import TABLES

GPUS: Final = ("a", "b", "c")
AT: Final = datetime(2026, 3, 1, 22, tzinfo=timezone.utc)
SLOWER_BASELINE: Final = 0.5
"""Logarithm of the baseline's time ÷ that of the usual candidate."""
Array = Any
Truth = Callable[[np.random.Generator, tuple[int, ...]], Array]
"""Draws logarithms of true times; shape (GPUs, problems, candidates)."""


def identical(_dice: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return np.zeros(shape)


def spread(deviation: float, *, same: bool = False) -> Truth:
    """Return candidates that differ by chance; the same on each GPU if ``same``."""

    def draw(dice: np.random.Generator, shape: tuple[int, ...]) -> Array:
        return np.broadcast_to(dice.normal(0, deviation, (1, *shape[1:]) if same else shape), shape)

    return draw


def steps(step: float) -> Truth:
    """Return the same candidates on each GPU, each slower than the one before by ``step``."""

    def draw(dice: np.random.Generator, shape: tuple[int, ...]) -> Array:
        return np.broadcast_to(step * dice.permuted(np.tile(np.arange(shape[2]), (shape[1], 1)), axis=1), shape)

    return draw


def clusters(dice: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Return candidates of two kinds: equal within a kind."""
    return np.broadcast_to(0.3 * (dice.random((1, *shape[1:])) < 0.5), shape)


@dataclass(frozen=True)
class Case:
    """One kind of table."""

    name: str
    truth: Truth
    noise: tuple[float, ...]
    """Standard deviations of sessions, of which each cell has one at random."""
    sessions: int = 3
    problems: int = 30
    candidates: int = 20
    run_deviation: float = 0.0
    gpus: int = 3
    noisier: float = 1.0
    """Multiple of the noise on the second GPU."""


CASES: Final = (
    *(
        Case(f"identical, {100 * noise:g} %, {sessions} sessions", identical, (noise,), sessions)
        for noise in (0.005, 0.03)
        for sessions in (2, 3, 5)
    ),
    Case("identical, 1 %, one problem", identical, (0.01,), problems=1),
    *(
        Case(f"{name}, mixed noise, {sessions} sessions", truth, (0.003, 0.01, 0.03), sessions)
        for name, truth in (
            ("identical", identical),
            ("spread 1 %", spread(0.01, same=True)),
            ("spread 30 %", spread(0.3)),
        )
        for sessions in (3, 5, 8)
    ),
    *(
        Case(f"spread 0.3 %, noise 1 %, {sessions} sessions", spread(0.003), (0.01,), sessions)
        for sessions in (2, 3, 5)
    ),
    Case("spread 1 %, noise 1 %", spread(0.01, same=True), (0.01,)),
    Case("spread 30 %, noise 1 %", spread(0.3), (0.01,)),
    Case("spread 10 %, noise 3 %, 2 sessions", spread(0.1, same=True), (0.03,), 2),
    Case("steps of 1 %, noise 2 %", steps(0.01), (0.02,)),
    Case("steps of 1 %, noise 2 %, second GPU 3 times", steps(0.01), (0.02,), noisier=3.0),
    Case("steps of 10 %, noise 1 %", steps(0.1), (0.01,)),
    Case("two kinds, noise 1 %", clusters, (0.01,)),
    Case("5 candidates, spread 1 %, noise 1 %", spread(0.01, same=True), (0.01,), candidates=5),
    Case("2 candidates, spread 1 %, noise 1 %", spread(0.01, same=True), (0.01,), candidates=2, problems=100),
    Case("spread 2 %, sessions 0.3 %, runs 0.7 %", spread(0.02, same=True), (0.003,), 5, run_deviation=0.007),
)


def tables(case: Case, dice: np.random.Generator) -> tuple[Tables, Array]:
    """Draw the table ``cells`` of a case; also returns the true logarithms of times."""
    shape = (case.gpus, case.problems, case.candidates)
    truth = np.asarray(case.truth(dice, shape))
    deviation = (
        dice.choice(case.noise, (*shape, 1)) * np.where(np.arange(case.gpus) == 1, case.noisier, 1)[:, None, None, None]
    )
    run = dice.normal(0, case.run_deviation, (*shape, 1))
    times = truth[..., None] + run + deviation * dice.standard_normal((*shape, case.sessions))
    baseline = SLOWER_BASELINE + run + deviation * dice.standard_normal((*shape, case.sessions))
    return as_tables(1e5 * np.exp(times), 1e5 * np.exp(baseline)), truth


def as_tables(times: Array, baseline: Array) -> Tables:
    """Make tables of session medians; shape (GPUs, problems, candidates, sessions)."""
    gpu, problem, candidate, session = (axis.ravel() for axis in np.indices(times.shape))
    numbered = pl.DataFrame({"gpu": gpu, "p": problem, "c": candidate, "session": session})
    cell = (gpu * times.shape[1] + problem) * times.shape[2] + candidate
    problems, candidates = (pl.concat_str(*parts) for parts in (_PROBLEM, (*_PROBLEM, pl.lit("/c"), pl.col("c"))))
    known = numbered.select(
        pl.Series("record", cell),
        pl.col("gpu").cast(pl.String),
        problems.alias("problem"),
        candidates.alias("candidate"),
        problems.alias("problem_sha256"),
        candidates.alias("candidate_sha256"),
        pl.Series("cell_id", cell).cast(pl.String),
        pl.col("session"),
        pl.Series("candidate_median_ns", times.ravel()),
        pl.Series("baseline_median_ns", baseline.ravel()),
        pl.Series("speedup", (baseline / times).ravel()),
        *(pl.lit(text).alias(name) for name, text in _CONSTANT.items()),
        *(pl.lit(AT).alias(name) for name in ("run_started_at", "started_at", "ended_at")),
        pl.lit(1).alias("attempt"),
    )
    nothing = pl.repeat(None, known.height, eager=True)
    cells = pl.DataFrame(
        {
            name: known[name].cast(dtype) if name in known.columns else nothing.cast(dtype)
            for name, dtype in TABLES["cells"].items()
        }
    )
    others = {name: pl.DataFrame(schema=schema).lazy() for name, schema in TABLES.items() if name != "cells"}
    return Tables(cells=cells.lazy(), **others)


_PROBLEM: Final = (pl.lit("p"), pl.col("p"))
_CONSTANT: Final = {
    "run_id": "run", "matrix": "drawn", "toolchain": "cu130", "dtype": "fp32", "workload": "default",
    "status": "passed", "session_status": "passed", "fault": "none", "host_id": "host", "gpu_uuid": "GPU-1",
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", type=int, default=10)
    parser.add_argument("--seed", type=int, default=19)
    parser.add_argument("--cells", type=int)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.cells:
        figures: Any = timed(options.cells, np.random.default_rng(options.seed))
        print(json.dumps(figures, indent=2))
        return
    figures = []
    for case in CASES:
        figures.append(measured(case, options.pages, np.random.default_rng(options.seed)))
        if not options.json:
            print(told(figures[-1]), flush=True)
    if options.json:
        print(json.dumps(figures, indent=2))


def measured(case: Case, pages: int, dice: np.random.Generator) -> dict[str, Any]:
    """Return the figures of one case."""
    found = [page(case, dice) for _ in range(pages)]

    def mean(name: str) -> float | None:
        values = [each[name] for each in found if each[name] is not None]
        return float(np.mean(values)) if values else None

    return {"case": case.name, "pages": pages, **{name: mean(name) for name in found[0]}}


def page(case: Case, dice: np.random.Generator) -> dict[str, float | None]:
    """Return the figures of one table."""
    drawn, truth = tables(case, dice)
    order, regret = (answer.table for answer in ranks(drawn, QuestionOptions()))
    first = order.row(0, named=True)
    ceilings = [first[name] for name in ("ceiling", "ceiling_other")]
    off = None if None in ceilings else abs(first["tau"] - first["ceiling_of_both"])
    answer = portability(drawn, QuestionOptions())[0].table.select("problem", "candidate", "pp", "pp_low", "pp_high")
    best = np.minimum(truth.min(axis=2, keepdims=True), SLOWER_BASELINE)
    true = 1 / np.mean(np.exp(truth - best), axis=0)
    names = [(f"p{p}", f"p{p}/c{c}") for p in range(true.shape[0]) for c in range(true.shape[1])]
    wanted = pl.DataFrame({"candidate": [name for _, name in names], "true": true.ravel()})
    joined = answer.join(wanted, on="candidate")
    inside = (pl.col("pp_low") <= pl.col("true") + 1e-12) & (pl.col("true") <= pl.col("pp_high") + 1e-12)
    share, given, width, bias = joined.select(
        inside.mean(),
        pl.col("pp_low").is_not_null().mean().alias("given"),
        (pl.col("pp_high") / pl.col("pp_low")).log().mean(),
        (pl.col("pp") / pl.col("true")).log().mean(),
    ).row(0)
    costs = regret.row(0, named=True)
    return {
        "tau": first["tau"],
        "ceiling": first["ceiling"],
        "ceiling_other": first["ceiling_other"],
        "off_ceiling": off,
        "with_ceiling": float(off is not None),
        "top1": first["top1"],
        "top1_ceiling": first["top1_ceiling"],
        "regret": costs["median"],
        "p95": costs["p95"],
        "p95_noise": costs["p95_noise"],
        "below_noise": np.mean([costs[name] <= costs[f"{name}_noise"] for name in ("median", "p95", "worst")]),
        "coverage": share,
        "with_interval": given,
        "width": width,
        "bias": bias,
    }


def timed(cells: int, dice: np.random.Generator) -> dict[str, float]:
    """Measure both questions on ``cells`` cells of three sessions."""
    case = Case("large", spread(0.05), (0.01,), problems=cells // 40, gpus=2)
    drawn, _ = tables(case, dice)
    seconds = {}
    for question in (ranks, portability):
        started = time.perf_counter()
        question(drawn, QuestionOptions())
        seconds[f"{question.__name__}_s"] = time.perf_counter() - started
    return seconds


def told(row: dict[str, Any]) -> str:
    def number(name: str, factor: float = 1.0) -> str:
        return "   –" if row[name] is None else f"{factor * row[name]:.2f}"

    parts = (
        f"{row['case']:42} tau {number('tau')} of {number('ceiling')} and {number('ceiling_other')}",
        f"(given {number('with_ceiling', 100)} %, off {number('off_ceiling')})",
        f" top1 {number('top1')} of {number('top1_ceiling')}",
        f" regret {row['p95']:.4f}, noise {row['p95_noise']:.4f}, below it {number('below_noise', 100)} %",
        f" PP covered {number('coverage', 100)} %, given {number('with_interval', 100)} %",
        f"width {number('width', 100)} % off {number('bias', 100)} %",
    )
    return " ".join(parts)


if __name__ == "__main__":
    main()
