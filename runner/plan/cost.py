"""How long a cell will take, roughly: enough to order cells and to say hours or minutes.

A cell is ``sessions`` times a start, and per workload the verification calls and the time budget. The budget is used up
only where samples keep scattering, so the estimate is an upper one for quick, steady kernels.
"""

from __future__ import annotations

from runner.core.messages import ProtocolSpec
from runner.core.vocab import Language
from runner.matrix import Protocol

_START_S = {"cpu": 4.0, "nvidia": 6.0}
"""Judge, candidate and baseline come up at once: import of torch, and a CUDA context where there is a GPU."""
_CALL_S = {"cpu": 0.1, "nvidia": 0.02}
"""One verification call with its inputs, reference and comparison."""
_BUILD_S = {Language.CUDA: 30.0, Language.TRITON: 2.0, Language.TORCH: 0.0}
"""Once per cell: nvcc through load_inline, or the first compilation of Triton kernels."""


def expected_seconds(protocol: Protocol, *, workloads: int, vendor: str, language: Language) -> float:
    """Expected wall time of one cell, seconds.

    :param workloads: how many workloads the cell has.
    """
    session_s = _START_S[vendor] + workloads * _workload_seconds(protocol.spec, vendor)
    return _BUILD_S[language] + protocol.sessions * session_s


def _workload_seconds(spec: ProtocolSpec, vendor: str) -> float:
    rounds = 2 if spec.time else 1  # verified before and, when something was timed in between, after
    verify_s = rounds * spec.trials * len(spec.modes) * _CALL_S[vendor]
    return verify_s + (spec.budget_s if spec.time else 0.0)
