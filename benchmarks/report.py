"""How long a report of 20, 20,000 and 1,000,000 cells takes, how large it is, and how fast a browser opens it.

``python benchmarks/report.py [CELLS]... [--keep DIR]``: writes made-up tables with 50 samples per cell and session,
then reports from them in a process of its own, whose highest memory is told.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from datetime import datetime, timezone
from pathlib import Path

import numpy as np
import polars as pl

from kernel_matrix.analysis.sentences import sentence
from kernel_matrix.results.schema import TABLES

START = datetime(2026, 3, 1, 22, tzinfo=timezone.utc)
GPUS = ("h200", "h100", "b200", "a100", "l40s")
TOOLCHAINS = ("cu124", "cu130")
DTYPES = ("fp32", "fp16", "bf16", "fp64")
FAILURES = ("incorrect_values", "compile_error", "runtime_error", "timeout", "infra_error")
_SAMPLES = 50


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cells", nargs="*", type=int, default=[20, 20_000, 1_000_000])
    parser.add_argument("--keep", type=Path, help="keep tables and pages here")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as aside:
        for cells in asked.cells:
            folder = (asked.keep or Path(aside)) / str(cells)
            if not (folder / "samples.parquet").is_file():
                write_tables(folder, cells)
            for kind in ("html", "md"):
                print(json.dumps(report(folder, kind, cells)))


def report(folder: Path, kind: str, cells: int) -> dict[str, object]:
    """Seconds, highest memory and size of one report; how long its page takes to open, where a browser is here."""
    out = folder / f"report.{kind}"
    script = (
        "import resource, sys, runpy; sys.argv[0] = 'kernel-matrix'\n"
        "try: runpy.run_module('kernel_matrix', run_name='__main__', alter_sys=True)\n"
        "finally: print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    started = time.perf_counter()
    argv = (sys.executable, "-c", script, "report", str(folder), "--out", str(out), "--format", kind)
    done = subprocess.run(argv, check=True, capture_output=True, text=True)
    seconds = time.perf_counter() - started
    peak = int(done.stdout.split()[-1]) / 1e6
    found = {"cells": cells, "format": kind, "seconds": round(seconds, 1), "peak_gb": round(peak, 2)}
    found["mb"] = round(out.stat().st_size / 1e6, 2)
    return found | ({"opens_s": opens(out)} if kind == "html" else {})


def opens(page: Path) -> float | str:
    """Seconds until the page has loaded, from disk."""
    try:
        from playwright.sync_api import sync_playwright  # noqa: PLC0415  # only where a browser is asked
    except ImportError:
        return "no playwright"
    if not Path("/usr/bin/chromium").exists():
        return "no chromium"
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        tab = browser.new_page()
        started = time.perf_counter()
        tab.goto(page.as_uri())
        tab.evaluate("location.hash = 'cells'")
        tab.wait_for_selector(".window tbody tr:nth-child(3)")
        seconds = time.perf_counter() - started
        browser.close()
    return round(seconds, 2)


def write_tables(folder: Path, cells: int) -> None:
    """Tables of so many cells, one session each for the largest, else three; with samples of both sides."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(6)
    sessions = 1 if cells > 100_000 else 3
    cell = np.arange(cells)
    gpu, toolchain = cell % len(GPUS), cell // len(GPUS) % len(TOOLCHAINS)
    dtype = cell // (len(GPUS) * len(TOOLCHAINS)) % len(DTYPES)
    kernel = cell // (len(GPUS) * len(TOOLCHAINS) * len(DTYPES))
    problem = kernel % 250
    failed = rng.random(cells) < 0.12
    why = rng.integers(0, len(FAILURES), cells)
    speed = np.exp(rng.normal(0.25, 0.5, cells) + rng.normal(0, 0.2, len(GPUS))[gpu])
    baseline = np.exp(rng.normal(11, 1, 250))[problem]
    names = pl.DataFrame({"problem": [f"problem_{n:03}" for n in range(250)]})["problem"]
    statuses = pl.Series(FAILURES)
    at = np.repeat(cell, sessions)
    rows = pl.DataFrame({"record": at, "session": np.tile(np.arange(sessions), cells)})
    noise = [np.exp(rng.normal(0, 0.006, len(at))) for _ in range(2)]
    bad = failed[at]

    def text(words: tuple[str, ...], index: np.ndarray) -> pl.Series:
        return pl.Series(words).gather(index[at])

    infra = bad & (why[at] == 4)
    night = pl.Series(at % 5)
    columns = {
        "record": rows["record"],
        "session": rows["session"],
        "run_id": "run-" + night.cast(pl.String),
        "cell_id": pl.Series([f"{n:032x}" for n in cell]).gather(at),
        "attempt": pl.repeat(1, len(at), eager=True),
        "gpu": text(GPUS, gpu),
        "gpu_name": "NVIDIA " + text(GPUS, gpu).str.to_uppercase(),
        "gpu_uuid": "GPU-" + text(GPUS, gpu),
        "toolchain": text(TOOLCHAINS, toolchain),
        "dtype": text(DTYPES, dtype),
        "problem": names.gather(problem[at]),
        "category": text(("Activation", "Reduce", "Math", "Loss", "Fusion"), problem % 5),
        "candidate": names.gather(problem[at]) + "/method_" + pl.Series(kernel[at] // 250).cast(pl.String),
        "candidate_sha256": pl.Series(kernel[at]).cast(pl.String),
        "problem_sha256": pl.Series(problem[at]).cast(pl.String),
        "origin_method": "method_" + pl.Series(kernel[at] // 250).cast(pl.String),
        "status": pl.select(
            pl.when(pl.Series(bad)).then(statuses.gather(why[at])).otherwise(pl.lit("passed"))
        ).to_series(),
        "fault": pl.select(
            pl.when(pl.Series(infra))
            .then(pl.lit("infra"))
            .when(pl.Series(bad))
            .then(pl.lit("candidate"))
            .otherwise(pl.lit("none"))
        ).to_series(),
        "message": pl.select(
            pl.when(pl.Series(bad))
            .then(sentence("output 0: {} of 4096 elements beyond tolerance", pl.lit(pl.Series(at % 977))))
            .otherwise(pl.lit(""))
        ).to_series(),
        "candidate_median_ns": pl.Series(np.where(bad, np.nan, (baseline / speed[cell])[at] * noise[0])).fill_nan(None),
        "baseline_median_ns": pl.Series(np.where(bad, np.nan, baseline[at] * noise[1])).fill_nan(None),
        "spread_within": pl.Series(np.abs(rng.normal(0.005, 0.003, len(at)))),
        "run_started_at": pl.select(pl.lit(START) + pl.duration(days=night)).to_series(),
        "started_at": pl.select(pl.lit(START) + pl.duration(days=night, minutes=5)).to_series(),
        "intensity": pl.Series(np.exp(rng.normal(2, 1.5, 250))[problem[at]]),
    }
    columns["speedup"] = columns["baseline_median_ns"] / columns["candidate_median_ns"]
    columns["flops_per_s"] = columns["intensity"] * 2e12 / (1 + columns["candidate_median_ns"] / 1e5)
    fixed = {
        "matrix": "made",
        "level": 1,
        "source": "folder",
        "language": "triton",
        "tier": "publish",
        "expect": "passed",
        "stage": "done",
        "session_status": "passed",
        "session_stage": "done",
        "workload": "default",
        "workload_status": "passed",
        "candidate_samples": _SAMPLES,
        "baseline_samples": _SAMPLES,
        "grade": "A",
        "hostname": "node1",
        "host_id": "host1",
        "driver": "580.1",
        "engine": "docker",
        "image_id": "sha256:1",
        "exclusive": "proven",
        "clock_state": "locked",
        "torch": "2.13.0",
        "triton": "3.7.1",
        "cuda": "13.0",
        "peak_flops_per_s": 6e13,
        "peak_bytes_per_s": 4e12,
        "spread_between": 0.006,
        "machine_drift": 0.004,
    }
    made = pl.DataFrame(columns).with_columns(**{name: pl.lit(value) for name, value in fixed.items()})
    made = made.with_columns(
        verdict=pl.when(pl.col("speedup") > 1.02)
        .then(pl.lit("faster"))
        .when(pl.col("speedup") < 0.98)
        .then(pl.lit("slower"))
        .when(pl.col("speedup").is_not_null())
        .then(pl.lit("equivalent"))
    )
    _write(folder, "cells", made)
    timed = made.filter(pl.col("speedup").is_not_null()).select(
        "record", "session", "workload", "candidate_median_ns", "baseline_median_ns"
    )
    parts = []
    for side, role, contestant in (
        ("candidate_median_ns", "candidate", "candidate"),
        ("baseline_median_ns", "baseline", "eager"),
    ):
        index = np.tile(np.arange(_SAMPLES), timed.height)
        many = (
            timed.select(pl.all().repeat_by(_SAMPLES).explode())
            if timed.height < 100_000
            else timed.select(pl.all().gather(pl.Series(np.repeat(np.arange(timed.height), _SAMPLES))))
        )
        parts.append(
            many.select(
                *("record", "session", "workload"),
                role=pl.lit(role),
                contestant=pl.lit(contestant),
                regime=pl.lit("cold"),
                calls_per_sample=pl.lit(1),
                block=pl.Series(index // 25),
                index=pl.Series(index),
                device_ns=(pl.col(side) * pl.Series(np.exp(rng.normal(0, 0.005, many.height)))).cast(pl.Int64),
            )
        )
        if cells > 100_000:
            break
    _write(folder, "samples", pl.concat(parts))
    for name in ("batches", "kernels", "hosts"):
        _write(folder, name, pl.DataFrame())


def _write(folder: Path, name: str, frame: pl.DataFrame) -> None:
    schema = TABLES[name]
    frame.select(
        (pl.col(column).cast(dtype) if column in frame.columns else pl.lit(None, dtype=dtype).alias(column))
        for column, dtype in schema.items()
    ).write_parquet(folder / f"{name}.parquet")


if __name__ == "__main__":
    main()
