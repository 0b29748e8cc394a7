"""KernelBench: ``eval_kernel_against_ref`` with the same call, judged by a service.

The service's address is in ``KERNEL_MATRIX_SERVICE``. Seeds, numbers of trials, devices and folders have no effect: the
service chooses them itself.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

from kernel_matrix import Client
from kernel_matrix.client.rewards import binary, speedup_bound, staged

DTYPES = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}


@dataclass
class KernelExecResult:
    """What KernelBench says of a candidate; times are microseconds, those of the slowest workload."""

    compiled: bool = False
    correctness: bool = False
    metadata: dict[str, Any] = field(default_factory=dict)
    runtime: float = -1.0
    runtime_stats: dict[str, Any] = field(default_factory=dict)
    ref_runtime: float = -1.0
    ref_runtime_stats: dict[str, Any] = field(default_factory=dict)


def eval_kernel_against_ref(  # noqa: PLR0917  # KernelBench's parameters
    original_model_src: str,
    custom_model_src: str,
    seed_num: int = 42,
    num_correct_trials: int = 1,
    num_perf_trials: int = 10,
    measure_performance: bool = False,  # noqa: FBT001, FBT002  # where KernelBench has it
    *_: Any,
    precision: Any = "float32",
    **_others: Any,
) -> KernelExecResult | None:
    """Have ``custom_model_src`` judged; None where nothing is known about it, for which KernelBench tries again."""
    del seed_num, num_correct_trials, num_perf_trials
    dtype = str(precision).removeprefix("torch.")
    request = {"reference": original_model_src, "source": custom_model_src, "dtype": DTYPES.get(dtype, dtype)}
    with Client(os.environ.get("KERNEL_MATRIX_SERVICE", "http://127.0.0.1:8000")) as client:
        result = client.evaluate(**request, tier=None if measure_performance else "values").result
    correct = binary(result)
    if result is None or correct is None:
        return None
    metadata = {"status": result.status, "speedup_bound": speedup_bound(result), **result.evidence}
    compiled = bool(staged(compiled=1, right=0, faster=0)(result))
    told = KernelExecResult(compiled=compiled, correctness=bool(correct), metadata=metadata)
    timed = [one for one in result.workloads.values() if one.keys() >= {"candidate_median_ns", "baseline_median_ns"}]
    if timed and told.correctness:
        slowest = max(timed, key=lambda columns: float(columns["candidate_median_ns"]))
        told.runtime, told.ref_runtime = slowest["candidate_median_ns"] / 1e3, slowest["baseline_median_ns"] / 1e3
    return told
