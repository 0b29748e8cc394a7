"""Clean tables without findings, and helpers to plant faults in them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from kernel_matrix.analysis.audit import chosen
from kernel_matrix.analysis.tables import Tables
from tests.analysis.made import cell, cells, frame

GPUS = {"h200": "NVIDIA H200", "a100-80gb": "NVIDIA A100-SXM4-80GB", "l40s": "NVIDIA L40S", "t4": "Tesla T4"}
BYTES_PER_S = {"h200": 4.8e12, "a100-80gb": 2.039e12, "l40s": 0.864e12, "t4": 0.32e12}
PROBLEMS = {f"problem{number}": 3e7 * 1.7**number for number in range(8)}
"""Problem → bytes it moves."""
CALLS = 25


def clean() -> list[dict[str, Any]]:
    """Rows of 4 GPUs × 8 problems × 2 candidates × 2 sessions, each time half of the memory's peak, within 1 %."""
    noise = np.random.default_rng(7)
    rows = []
    for gpu in GPUS:
        for problem, moved in PROBLEMS.items():
            for candidate, factor in (("slow", 2.0), ("fast", 1.4)):
                for session in range(2):
                    usual = 2e9 * moved / BYTES_PER_S[gpu]
                    ours, theirs = usual * np.exp(noise.normal(0, 0.01, 2)) * (factor / 2, 1.2)
                    rows.append(
                        _row(
                            gpu=gpu,
                            problem=problem,
                            candidate=f"{problem}/{candidate}",
                            session=session,
                            ours=ours,
                            theirs=theirs,
                        )
                    )
    return rows


def _row(*, gpu: str, problem: str, candidate: str, session: int, ours: float, theirs: float) -> dict[str, Any]:
    """One row; its medians are odd multiples of 32 ns, the tick of a device's timer."""
    moved = PROBLEMS[problem]
    ours, theirs = (32.0 * (2 * round(time / 64) + 1) for time in (ours, theirs))
    return cell(
        gpu=gpu, gpu_name=GPUS[gpu], gpu_uuid=f"GPU-{gpu}", host_id=f"host-{gpu}", hostname=f"node-{gpu}",
        problem=problem, candidate=candidate, session=session, bytes=moved, flops=moved / 8, measurement_version="core",
        candidate_median_ns=ours, baseline_median_ns=theirs, candidate_samples=CALLS, baseline_samples=CALLS,
        verdict_sessions=2, code_sha256=f"{gpu} {candidate}", compute_capability=gpu, kernels_seen=1,
        own_kernel_share=1.0,
        foreign_pids=0, machine_drift=0.004, version="0.1.0", triton="3.6.0", cuda="13.0",
    )  # fmt: skip


def tables_of(rows: list[dict[str, Any]], *, samples: list[dict[str, Any]] | None = None) -> Tables:
    """Tables of ``rows``, with calls that have their medians, and their hosts."""
    made = cells(rows)
    numbered = made.collect().to_dicts()
    hosts = [{"host_id": host} for host in sorted({row["host_id"] for row in rows if row["host_id"]})]
    every = calls_of(numbered) if samples is None else samples
    return Tables(
        cells=made,
        samples=frame("samples", every).lazy(),
        batches=frame("batches", []).lazy(),
        kernels=frame("kernels", []).lazy(),
        hosts=frame("hosts", hosts).lazy(),
    )


def calls_of(numbered: list[dict[str, Any]], *, only: int = 40) -> list[dict[str, Any]]:
    """Calls around the medians of the first rows: an odd number of them, the middle one the median itself."""
    noise = np.random.default_rng(11)
    found = []
    for row in numbered[:only]:
        for contestant, role, name in (("candidate", "candidate", "candidate"), ("eager", "baseline", "baseline")):
            median = row[f"{name}_median_ns"]
            if median is None or not median > 0 or not np.isfinite(median):
                continue
            apart = 32 * np.sort(noise.integers(1, 2 + int(median / 320), CALLS // 2))
            times = np.concatenate([median - apart, [median], median + apart[::-1]])
            noise.shuffle(times)
            found += [
                {
                    "record": row["record"], "session": row["session"], "workload": row["workload"], "role": role,
                    "contestant": contestant, "regime": "cold", "calls_per_sample": 1, "block": 0, "index": index,
                    "block_started_ns": 1000, "block_ended_ns": 2000, "device_ns": int(time),
                    "wall_ns": int(time) + 300_000,
                }
                for index, time in enumerate(times)
            ]  # fmt: skip
    return found


def heard(name: str, tables: Tables) -> list[dict[str, Any]]:
    """The findings of the check with this name."""
    (check,) = chosen([name])
    return check.findings(tables).to_dicts()


def with_samples(tables: Tables, samples: list[dict[str, Any]]) -> Tables:
    """``tables`` with these calls instead."""
    return replace(tables, samples=frame("samples", samples).lazy())
