"""How long a cell will take, roughly: enough to order cells, to keep a deadline and to say hours or minutes.

A cell is ``sessions`` times a start, and per workload the verification calls and the timed calls: as many as the
protocol allows at most, or as the time budget has room for. Samples that settle early make it quicker.
"""

from __future__ import annotations

from runner.core.messages import ProtocolSpec
from runner.core.vocab import Language
from runner.matrix import Protocol

_START_S = {"cpu": 3.0, "nvidia": 4.0}
"""Judge and candidate come up at once: import of torch, and a CUDA context where there is a GPU."""
_CALL_S = {"cpu": 0.05, "nvidia": 0.03}
"""One verification call with its inputs, reference and comparison."""
_TIMED_CALL_S = {"cpu": 0.01, "nvidia": 0.0025}
"""One timed call with its inputs."""
_BUILD_S = {Language.CUDA: 10.0, Language.TRITON: 1.0, Language.TORCH: 0.0}
"""Per cell: the share of an nvcc run that no other cell hides, or the first compilation of Triton kernels."""
_COMPILE_S = {Language.CUDA: 60.0, Language.TRITON: 6.0, Language.TORCH: 0.0}
"""A build of its own: nvcc, or Triton for every form of a kernel, import of torch included."""


def expected_compile_seconds(language: Language) -> float:
    """Expected wall time of a cell that is only compiled, seconds."""
    return _COMPILE_S[language]


def expected_seconds(protocol: Protocol, *, workloads: int, vendor: str, language: Language) -> float:
    """Expected wall time of one cell, seconds.

    :param workloads: how many workloads the cell has.
    """
    session_s = _START_S[vendor] + workloads * _workload_seconds(protocol.spec, vendor)
    return _BUILD_S[language] + protocol.sessions * session_s


def _workload_seconds(spec: ProtocolSpec, vendor: str) -> float:
    rounds = 2 if spec.time else 1  # verified before and, when something was timed in between, after
    verify_s = rounds * spec.trials * len(spec.modes) * _CALL_S[vendor]
    contestants = 1 + len(spec.baselines)
    timed_s = min(spec.budget_s, contestants * spec.max_samples * _TIMED_CALL_S[vendor])
    return verify_s + (timed_s if spec.time else 0.0)
