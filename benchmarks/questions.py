"""Times of every question of ``kernel-matrix analyze`` and of every check of ``audit`` at a million rows.

``python benchmarks/questions.py [--records N] [--sessions N] [--keep DIR] [--json] [NAME]...`` writes made-up tables:

- ``wide``: as many records as asked, of 20 GPUs, 5 toolchains and 200 problems, each cell in one night;
- ``nightly``: the same number of rows over 30 nights.

Each question is then asked in a process of its own: wall time, processor time, and highest memory with the tables'
reading in it. ``NAME`` is a question, or ``audit``; by default all are timed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl

from kernel_matrix.analysis.questions import QUESTIONS
from kernel_matrix.results.schema import TABLES

START: Final = datetime(2026, 3, 1, 22, tzinfo=timezone.utc)
AUDIT: Final = "audit"
NIGHTS: Final = 30
SAMPLES: Final = 50
"""Per record, of the candidate only; its sessions share them."""
FAILURES: Final = ("incorrect_values", "compile_error", "runtime_error", "timeout", "infra_error")

_ASK = """
import json, re, resource, sys, time
from pathlib import Path
from kernel_matrix.analysis.questions import QuestionOptions, ask
from kernel_matrix.analysis.tables import open_tables
name, folder = sys.argv[1:]
tables = open_tables([Path(folder)])
if name == "audit":
    from kernel_matrix.analysis.audit import audit, chosen
    each = {}
    for check in chosen():
        began = time.perf_counter()
        rows = sum(found.height for _check, found in audit(tables, [check]))
        each[check.name] = [round(time.perf_counter() - began, 1), rows]
else:
    each = {answer.name: answer.table.height for answer in ask(name, tables, QuestionOptions())}
peak = re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]
used = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps({"cpu_s": used.ru_utime + used.ru_stime, "peak_gib": int(peak) / 2**20, "answers": each}))
"""


@dataclass(frozen=True)
class Shape:
    """Size of a set of tables."""

    records: int
    sessions: int
    nights: int = 1
    gpus: int = 20
    toolchains: int = 5
    problems: int = 200

    @property
    def cells(self) -> int:
        """Number of cells."""
        return max(self.records // self.nights, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="questions to time")
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--sessions", type=int, default=1, help="sessions per record of the wide tables")
    parser.add_argument("--keep", type=Path, help="keep the tables here, and use those that are there")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    names = asked.names or [*QUESTIONS, AUDIT]
    with tempfile.TemporaryDirectory() as aside:
        for name in names:
            kind, shape = ("wide", Shape(asked.records, asked.sessions))
            if name == "drift":
                kind, shape = ("nightly", Shape(asked.records // 3, 3, nights=NIGHTS, gpus=5, toolchains=2))
            folder = (asked.keep or Path(aside)) / f"{kind}-{shape.records}-{shape.sessions}"
            if not (folder / "hosts.parquet").is_file():
                write_tables(folder, shape)
            found = {"question": name, "records": shape.records, "sessions": shape.sessions, **timed(name, folder)}
            print(json.dumps(found) if asked.json else told(found), flush=True)


def timed(name: str, folder: Path) -> dict[str, Any]:
    """Ask one question in a process of its own."""
    began = time.perf_counter()
    asked = subprocess.run((sys.executable, "-c", _ASK, name, str(folder)), stdout=subprocess.PIPE, check=True)
    return {"seconds": time.perf_counter() - began, **json.loads(asked.stdout)}


def told(found: dict[str, Any]) -> str:
    line = (
        f"{found['question']:12} {found['records']:9,} records × {found['sessions']}  {found['seconds']:6.1f} s"
        f"  {found['cpu_s']:6.1f} s of processors  {found['peak_gib']:5.2f} GiB"
    )
    if found["question"] != AUDIT:
        return line
    each = sorted(found["answers"].items(), key=lambda item: -item[1][0])
    return "\n".join([line, *(f"    {name:30} {seconds:6.1f} s  {rows:9,} rows" for name, (seconds, rows) in each)])


def write_tables(folder: Path, shape: Shape) -> None:
    """Write tables of made-up records; samples of the wide shape only."""
    folder.mkdir(parents=True, exist_ok=True)
    dice = np.random.default_rng(12)
    record = np.repeat(np.arange(shape.cells * shape.nights), shape.sessions)
    cell, night = record // shape.nights, record % shape.nights
    made = _places(cell, shape).with_columns(
        record=pl.Series(record),
        session=pl.Series(np.tile(np.arange(shape.sessions), shape.cells * shape.nights)),
        cell_id=pl.Series("cell_id", cell).cast(pl.String).str.zfill(32),
        _night=pl.Series(night),
    )
    made = made.with_columns(**_outcomes(dice, cell, shape)).with_columns(**_facts())
    _write(folder, "cells", made)
    _write(folder, "samples", _samples(dice, made) if shape.nights == 1 else pl.DataFrame())
    for name in ("batches", "kernels", "hosts"):
        _write(folder, name, pl.DataFrame())


def _places(cell: Any, shape: Shape) -> pl.DataFrame:
    """Return what identifies the cells; neighbouring numbers differ in their GPU first."""
    gpu, rest = cell % shape.gpus, cell // shape.gpus
    toolchain, kernel = rest % shape.toolchains, rest // shape.toolchains
    problem, method = kernel % shape.problems, kernel // shape.problems
    numbers = {"gpu": gpu, "toolchain": toolchain, "problem": problem, "_method": method}
    names = {"gpu": "gpu_", "toolchain": "cu", "problem": "problem_", "_method": "method_"}
    texts = pl.DataFrame(
        {name: (names[name] + pl.Series(number).cast(pl.String).str.zfill(2)) for name, number in numbers.items()}
    )
    return texts.with_columns(
        candidate=pl.col("problem") + "/" + pl.col("_method"),
        category="category_" + pl.Series(problem % 8).cast(pl.String),
        origin_method=pl.col("_method"),
        gpu_name="NVIDIA " + pl.col("gpu"),
        gpu_uuid="GPU-" + pl.col("gpu") + pl.Series(problem % 2).cast(pl.String),
        candidate_sha256=pl.col("problem") + pl.col("_method"),
        problem_sha256=pl.col("problem"),
    ).drop("_method")


def _outcomes(dice: np.random.Generator, cell: Any, shape: Shape) -> dict[str, pl.Series | pl.Expr]:
    cells = shape.cells
    failed = (dice.random(cells) < 0.12)[cell]
    why = pl.Series(FAILURES).gather(dice.integers(0, len(FAILURES), cells)[cell])
    usual = np.exp(dice.normal(11, 1, shape.problems))[cell // (shape.gpus * shape.toolchains) % shape.problems]
    speed = np.exp(dice.normal(0.25, 0.5, cells))[cell]
    noise = np.exp(dice.normal(0, 0.006, (2, len(cell))))
    infra, status = pl.Series(failed) & (why == "infra_error"), pl.Series(failed)
    candidate = pl.Series(np.where(failed, np.nan, usual / speed * noise[0])).fill_nan(None)
    baseline = pl.Series(np.where(failed, np.nan, usual * noise[1])).fill_nan(None)
    at = pl.lit(START) + pl.duration(days=pl.col("_night"))
    kind = {
        "status": pl.select(pl.when(status).then(why).otherwise(pl.lit("passed"))).to_series(),
        "fault": pl.select(
            pl.when(infra).then(pl.lit("infra")).when(status).then(pl.lit("candidate")).otherwise(pl.lit("none"))
        ).to_series(),
    }
    return {
        **kind,
        "session_status": kind["status"],
        "message": pl.select(pl.when(status).then(pl.lit("output 0 is off")).otherwise(pl.lit(""))).to_series(),
        "candidate_median_ns": candidate,
        "baseline_median_ns": baseline,
        "speedup": baseline / candidate,
        "run_id": "run-" + pl.col("_night").cast(pl.String),
        "run_started_at": at,
        "started_at": at + pl.duration(minutes=5),
        "spread_within": pl.Series(np.abs(dice.normal(0.005, 0.003, len(cell)))),
        "baseline_spread_within": pl.Series(np.abs(dice.normal(0.005, 0.003, len(cell)))),
    }


def _facts() -> dict[str, pl.Expr]:
    """Return columns that are equal in all rows."""
    fixed = {
        "attempt": 1, "matrix": "made", "dtype": "fp32", "level": 1, "source": "folder", "language": "triton",
        "tier": "publish", "expect": "passed", "stage": "done", "session_stage": "done", "workload": "default",
        "workload_status": "passed", "candidate_samples": SAMPLES, "baseline_samples": SAMPLES, "grade": "A",
        "verdict": "faster", "hostname": "node1", "host_id": "host1", "driver": "580.1", "engine": "docker",
        "image_id": "sha256:1", "exclusive": "proven", "clock_state": "locked", "torch": "2.13.0",
        "triton": "3.7.1", "cuda": "13.0", "spread_between": 0.006, "machine_drift": 0.004, "total_s": 20.0,
    }  # fmt: skip
    return {name: pl.lit(value) for name, value in fixed.items()}


def _samples(dice: np.random.Generator, made: pl.DataFrame) -> pl.DataFrame:
    timed_ = made.filter(pl.col("speedup").is_not_null()).select("record", "session", "candidate_median_ns")
    each = max(SAMPLES // (1 + made["session"].max()), 4)
    at = pl.Series(np.repeat(np.arange(timed_.height, dtype=np.uint32), each))
    many = timed_.with_columns(pl.col("record").cast(pl.UInt32), pl.col("session").cast(pl.Int32)).select(
        pl.all().gather(at)
    )
    index = pl.Series(np.tile(np.arange(each, dtype=np.int32), timed_.height))
    noise = np.exp(dice.standard_normal(many.height, dtype=np.float32) * 0.005)
    return many.select(
        "record",
        "session",
        workload=pl.lit("default"),
        role=pl.lit("candidate"),
        contestant=pl.lit("candidate"),
        regime=pl.lit("cold"),
        calls_per_sample=pl.lit(1),
        block=index // -(-each // 2),
        index=index,
        device_ns=(pl.col("candidate_median_ns") * pl.Series(noise)).cast(pl.Int64),
    )


def _write(folder: Path, name: str, frame: pl.DataFrame) -> None:
    frame.select(
        (pl.col(column).cast(dtype) if column in frame.columns else pl.lit(None, dtype=dtype).alias(column))
        for column, dtype in TABLES[name].items()
    ).write_parquet(folder / f"{name}.parquet")


if __name__ == "__main__":
    main()
