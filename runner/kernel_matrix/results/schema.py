"""The one schema of the merged tables: never inferred, since inference drops columns and cuts numbers silently.

``cells``: one row per record × session × workload; a record that got to no session or workload has one row with nulls.
``samples``: one row per timed call; ``record``, ``session`` and ``workload`` join it to ``cells``.
``kernels``: one row per kernel that was built or, per session, seen to run; ``record`` joins it to ``cells``.
``hosts``: one row per distinct host, engine and device; ``host_id`` joins it to ``cells``.
``telemetry``, where it is asked for: one row per look at the device; ``record`` joins it to ``cells``.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

import polars as pl

from kernel_matrix.measure.roofline import COMPUTE, MEMORY
from kernel_matrix.measure.timed import CANDIDATE
from kernel_matrix.model.enums import (
    Dtype,
    Fault,
    Grade,
    Implementation,
    Language,
    Regime,
    Role,
    Stage,
    Status,
    Tier,
    Verdict,
)
from kernel_matrix.platforms import EventReason
from kernel_matrix.results.descriptions import DISCARDED
from kernel_matrix.results.kernel_rows import BUILT, TRACED

TABLES_VERSION: Final = 4
"""Changes when a column is renamed, retyped or removed, or an enum gets a word."""
VERSION_KEY: Final = "kernel_matrix_tables"
"""Under which the version stands in the metadata of each Parquet file of tables.

A file without it is told by its schema alone.
"""


def _enum(words: type[Enum]) -> pl.Enum:
    return pl.Enum([word.value for word in words])


_INSTANT = pl.Datetime("us", "UTC")

ORIGIN: Final[dict[str, pl.DataType]] = {
    "method": pl.String(),
    "model": pl.String(),
    "sample": pl.Int64(),
    "round": pl.Int64(),
    "parent": pl.String(),
    "prompt_sha256": pl.String(),
    "tokens_in": pl.Int64(),
    "tokens_cached": pl.Int64(),
    "tokens_out": pl.Int64(),
    "cost_usd": pl.Float64(),
    "wall_s": pl.Float64(),
}
"""A candidate's origin; in ``cells`` each name starts with ``origin_``."""

PHASES: Final = ("build", "lease_wait", "start", "inside", "teardown", "overhead", "total")
"""The host's phases; in ``cells`` as ``<phase>_s``."""

INSIDE_PHASES: Final = (
    *("import", "wait", "connect", "open", "load", "controls", "verify", "calibrate", "anchor", "warm_up", "time"),
    *("after", "trace", "health", "total"),
)
"""The judge's phases; in ``cells`` as ``inside_<phase>_s``."""

CONFINEMENTS: Final = ("user", "network", "filesystem", "processes", "capabilities", "seccomp")
"""How the candidate was confined; in ``cells`` each name starts with ``isolation_``."""

RIVALS: Final = {one.value.replace("-", "_"): one.value for one in Implementation if one is not Implementation.EAGER}
"""What columns of ``cells`` call a further baseline → its name; ``eager`` is *the* baseline."""

REGIMES: Final = tuple(regime.value for regime in Regime if regime is not Regime.COLD)
"""Regimes whose medians have columns of their own in ``cells``; all other times there are cold."""

TRAITS: Final = ("deterministic", "sensitivity", "exact", "rejects_lower_precision")
"""Traits of a problem and a candidate; in ``cells`` under the same names."""

QUALITIES: Final = ("cosine", "relative_l1", "rmse", "snr_db")
"""How near a quantised problem's outputs are; in ``cells`` each name starts with ``quality_``."""

VERSIONS: Final = ("python", "torch", "cuda", "cudnn", "triton", "ptxas", "nvcc")
"""Versions read inside; in ``cells`` under the same names."""

DEVICE: Final[dict[str, pl.DataType]] = {
    "gpu_uuid": pl.String(),
    "gpu_name": pl.String(),
    "compute_capability": pl.String(),
    "memory_bytes": pl.Int64(),
    "driver": pl.String(),
    "cuda_driver": pl.String(),
}
"""The device, as its driver's library names it; in ``cells`` and ``hosts``."""

CLOCKS: Final[dict[str, pl.DataType]] = {
    "clock_requested": pl.String(),
    "clock_set_mhz": pl.Int32(),
    "clock_driver_mhz": pl.Float64(),
    "clock_kernel_mhz": pl.Float64(),
    "clock_reset": pl.String(),
}
"""What was done about the clocks, and what they then were."""

TELEMETRY_SUMMARY: Final[dict[str, pl.DataType]] = {
    "telemetry_samples": pl.Int32(),
    "telemetry_joined": pl.String(),
    "sm_clock_mhz": pl.Float64(),
    "mem_clock_mhz": pl.Float64(),
    "power_w": pl.Float64(),
    "temperature_max_c": pl.Float64(),
    "energy_j": pl.Float64(),
}
"""A record's telemetry: medians over its timed blocks, the highest temperature, and the energy of all its sessions."""

CELLS: Final[dict[str, pl.DataType]] = {
    # which record
    "record": pl.UInt32(),
    "run_id": pl.String(),
    "cell_id": pl.String(),
    "attempt": pl.Int32(),
    "matrix": pl.String(),
    "run_started_at": _INSTANT,
    # which cell
    "gpu": pl.String(),
    "toolchain": pl.String(),
    "dtype": _enum(Dtype),
    "problem": pl.String(),
    "problem_sha256": pl.String(),
    "category": pl.String(),
    "level": pl.Int32(),
    "source": pl.String(),
    "candidate": pl.String(),
    "candidate_sha256": pl.String(),
    "language": _enum(Language),
    "tier": _enum(Tier),
    "expect": _enum(Status),
    **{f"origin_{name}": dtype for name, dtype in ORIGIN.items()},
    # how it ended
    "status": _enum(Status),
    "stage": _enum(Stage),
    "fault": _enum(Fault),
    "message": pl.String(),
    # which session
    "session": pl.Int32(),
    "session_status": _enum(Status),
    "session_stage": _enum(Stage),
    "seed_sha256": pl.String(),
    "transport": pl.String(),
    "labels": pl.List(pl.String()),
    "anchor_compute_ns": pl.Float64(),
    "anchor_memory_ns": pl.Float64(),
    "anchor_drift": pl.Float64(),
    "kernels_seen": pl.Int32(),
    "own_kernel_share": pl.Float64(),
    "device_healthy": pl.Boolean(),
    # which workload, and what was measured; medians leave discarded samples out
    "workload": pl.String(),
    "workload_status": _enum(Status),
    "values_json": pl.String(),
    "flops": pl.Float64(),
    "bytes": pl.Float64(),
    "reference_dtype": pl.String(),
    "inputs": pl.String(),
    "warmup_calls": pl.Int32(),
    "flush_bytes": pl.Int64(),
    "checked_calls": pl.Int32(),
    "wall_overhead_ns": pl.Int64(),
    "trials": pl.Int32(),
    "trials_passed": pl.Int32(),
    "worst_error_ratio": pl.Float64(),
    "deterministic": pl.Boolean(),
    "sensitivity": pl.List(pl.Float64()),
    "exact": pl.Boolean(),
    "rejects_lower_precision": pl.Boolean(),
    **{f"quality_{name}": pl.Float64() for name in QUALITIES},
    "wall_resolution_ns": pl.Int64(),
    "unexplained_ns": pl.Int64(),
    "handover_ns": pl.Int64(),
    "floor_ns": pl.Int64(),
    "floor_reason": pl.String(),
    "low_resolution": pl.Boolean(),
    "candidate_samples": pl.Int32(),
    "baseline_samples": pl.Int32(),
    **{name: pl.Int32() for name in DISCARDED},
    "candidate_median_ns": pl.Float64(),
    "baseline_median_ns": pl.Float64(),
    "candidate_wall_median_ns": pl.Float64(),
    "baseline_wall_median_ns": pl.Float64(),
    **{f"{name}_median_ns": pl.Float64() for name in RIVALS},
    **{f"{name}_{side}_median_ns": pl.Float64() for name in REGIMES for side in ("candidate", "baseline")},
    "spread_within": pl.Float64(),
    "speedup": pl.Float64(),
    **{f"speedup_over_{name}": pl.Float64() for name in RIVALS},
    "flops_per_s": pl.Float64(),
    "bytes_per_s": pl.Float64(),
    "flops_share_of_peak": pl.Float64(),
    "bytes_share_of_peak": pl.Float64(),
    "share_of_peak": pl.Float64(),
    "intensity": pl.Float64(),
    "bound": pl.Enum([COMPUTE, MEMORY]),
    # what all sessions of the attempt say together about the workload
    "verdict": _enum(Verdict),
    "verdict_speedup": pl.Float64(),
    "verdict_low": pl.Float64(),
    "verdict_high": pl.Float64(),
    "verdict_sessions": pl.Int32(),
    "grade": _enum(Grade),
    "grade_reason": pl.String(),
    "spread_between": pl.Float64(),
    "machine_drift": pl.Float64(),
    "code_drift": pl.Float64(),
    # what was built, and what its source holds
    "compile_s": pl.Float64(),
    "build_cached": pl.Boolean(),
    "build_key": pl.String(),
    "build_arch": pl.String(),
    "artifact_sha256": pl.String(),
    "registers_max": pl.Int32(),
    "spill_bytes_max": pl.Int64(),
    "shared_bytes_max": pl.Int64(),
    "stack_bytes_max": pl.Int64(),
    "code_sha256": pl.String(),
    "launchable": pl.Boolean(),
    "findings": pl.List(pl.String()),
    # where it ran
    "host_id": pl.String(),
    "hostname": pl.String(),
    "version": pl.String(),
    "measurement_version": pl.String(),
    "engine": pl.String(),
    "engine_version": pl.String(),
    "image_reference": pl.String(),
    "image_id": pl.String(),
    "image_repo_digest": pl.String(),
    "image_store": pl.String(),
    "image_state": pl.String(),
    **DEVICE,
    "peak_source": pl.String(),
    "peak_flops_per_s": pl.Float64(),
    "peak_bytes_per_s": pl.Float64(),
    "exclusive": pl.String(),
    "exclusive_reason": pl.String(),
    "foreign_pids": pl.Int32(),
    "clock_policy": pl.String(),
    "clock_state": pl.String(),
    "clock_reason": pl.String(),
    **CLOCKS,
    **TELEMETRY_SUMMARY,
    "health_probe": pl.String(),
    "quarantined": pl.Boolean(),
    **{f"isolation_{name}": pl.String() for name in CONFINEMENTS},
    **{name: pl.String() for name in VERSIONS},
    "settings_json": pl.String(),
    # when, and how long
    "started_at": _INSTANT,
    "ended_at": _INSTANT,
    **{f"{name}_s": pl.Float64() for name in PHASES},
    **{f"inside_{name}_s": pl.Float64() for name in INSIDE_PHASES},
    "warnings": pl.List(pl.String()),
}

SAMPLES: Final[dict[str, pl.DataType]] = {
    "record": pl.UInt32(),
    "session": pl.Int32(),
    "workload": pl.String(),
    "role": _enum(Role),
    "contestant": pl.Enum([CANDIDATE, *(one.value for one in Implementation)]),
    "regime": _enum(Regime),
    "calls_per_sample": pl.Int32(),
    "block": pl.Int32(),
    "block_started_ns": pl.Int64(),
    "block_ended_ns": pl.Int64(),
    "sm_clock_mhz": pl.Float64(),
    "index": pl.Int32(),
    "device_ns": pl.Int64(),
    "wall_ns": pl.Int64(),
    "discarded": pl.String(),
}

KERNELS: Final[dict[str, pl.DataType]] = {
    "record": pl.UInt32(),
    "session": pl.Int32(),
    "origin": pl.Enum([BUILT, TRACED]),
    "name": pl.String(),
    "arch": pl.Int32(),
    "registers": pl.Int32(),
    "spill_store_bytes": pl.Int64(),
    "spill_load_bytes": pl.Int64(),
    "shared_bytes": pl.Int64(),
    "stack_bytes": pl.Int64(),
    "sha256": pl.String(),
    "launchable": pl.Boolean(),
    "reason": pl.String(),
    "launches": pl.Int64(),
    "device_ns": pl.Int64(),
    "own": pl.Boolean(),
}

HOSTS: Final[dict[str, pl.DataType]] = {
    "host_id": pl.String(),
    "hostname": pl.String(),
    "machine": pl.String(),
    "platform": pl.String(),
    "cpu": pl.String(),
    "cores": pl.Int32(),
    "engine": pl.String(),
    "engine_version": pl.String(),
    **DEVICE,
    "records": pl.Int64(),
    "first_started_at": _INSTANT,
    "last_started_at": _INSTANT,
}

TABLES: Final = {"cells": CELLS, "samples": SAMPLES, "kernels": KERNELS, "hosts": HOSTS}
"""Table name → column → type, in file order; these are always written."""

TELEMETRY_FILE: Final = "telemetry.parquet"
TELEMETRY: Final[dict[str, pl.DataType]] = {
    "record": pl.UInt32(),
    "run_id": pl.String(),
    "cell_id": pl.String(),
    "attempt": pl.Int32(),
    "at_ns": pl.Int64(),
    "sm_clock_mhz": pl.Int64(),
    "mem_clock_mhz": pl.Int64(),
    "power_w": pl.Float64(),
    "power_average_w": pl.Float64(),
    "energy_mj": pl.Int64(),
    "temperature_c": pl.Int64(),
    "utilization_percent": pl.Int64(),
    "memory_used_bytes": pl.Int64(),
    "reasons": pl.List(_enum(EventReason)),
    **{f"{reason.value}_ns": pl.Int64() for reason in EventReason},
    "own_pids": pl.List(pl.Int64()),
    "foreign_pids": pl.List(pl.Int64()),
    "trouble": pl.String(),
}
"""The table of all traces, in file order; written only where it is asked for, since it is large."""
