"""Rough estimate of a cell's duration, good enough to order cells, keep a deadline and name hours or minutes.

A session consists of its start, per workload the verification calls and the timed calls (as many as the protocol or its
time budget allows), a block per contestant and further regime, and the compilation of rivals. A cell is estimated with
the mean of its least and greatest number of sessions, plus one untimed session per sanitizer. Samples that settle early
make it faster.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kernel_matrix.matrix import Protocol
from kernel_matrix.model.enums import Implementation, Language, Regime
from kernel_matrix.model.messages import ProtocolSpec
from kernel_matrix.platforms import CostFigures
from kernel_matrix.platforms.registry import get_platform

_REPLAYS_S: Mapping[Regime, float] = {Regime.WARM: 0.2, Regime.BURST: 0.3, Regime.SUSTAINED: 2.5}
"""Seconds for one block of calls of a millisecond each; see :mod:`kernel_matrix.inside.judge.replay_modes`."""
_RIVAL_S: Mapping[Implementation, float] = {Implementation.COMPILE: 15.0, Implementation.COMPILE_MAX_AUTOTUNE: 45.0}
"""Seconds that ``torch.compile`` takes for one workload."""
_SANITIZED = 10.0
"""Typical slowdown of calls under compute-sanitizer."""
_BUILD_S = {
    Language.CUDA: 10.0,
    Language.TRITON: 1.0,
    Language.TORCH: 0.0,
    Language.CUTE_DSL: 10.0,
    Language.TILELANG: 10.0,
    Language.HIP: 10.0,
}
"""Seconds per cell: the part of a build that does not overlap with other cells, or the first compilation of kernels."""
_COMPILE_S = {Language.CUDA: 60.0, Language.HIP: 60.0, Language.TRITON: 6.0}
"""Seconds of a build without a run: nvcc, hipcc, or Triton for every form of a kernel; includes the import of torch."""


def expected_compile_seconds(language: Language) -> float:
    """Return the expected wall time of a cell that is only compiled, seconds."""
    return _COMPILE_S.get(language, 0.0)


def expected_seconds(
    protocol: Protocol, *, workloads: int, held_out: int = 0, platform: str, language: Language, sanitizers: int = 0
) -> float:
    """Return the expected wall time of one cell, seconds.

    Args:
        protocol: Protocol of the cell.
        workloads: Number of the cell's workloads.
        held_out: Number of workloads that are verified only.
        platform: Platform of its GPU, which has the typical times.
        language: Language of the candidate.
        sanitizers: Number of sanitizer tools under which the candidate is run again, where the platform has any.
    """
    spec, chosen = protocol.spec, get_platform(platform)
    figures = chosen.COST
    workload_s = _verify_seconds(spec, figures) + (_time_seconds(spec, figures) if spec.time else 0.0)
    held_out_s = held_out * _verify_seconds(replace(spec, time=False), figures)
    session_s = figures.start_s + workloads * workload_s + held_out_s
    sanitized_s = figures.start_s + workloads * _SANITIZED * _verify_seconds(spec, figures)
    sessions = (protocol.sessions + max(protocol.sessions, protocol.max_sessions)) / 2
    checked_s = sanitizers * sanitized_s if chosen.SANITIZER else 0.0
    return _BUILD_S[language] + sessions * session_s + checked_s


def _verify_seconds(spec: ProtocolSpec, figures: CostFigures) -> float:
    rounds = 2 if spec.time else 1  # verified before timing and, if anything was timed, again after it
    return rounds * spec.trials * len(spec.modes) * figures.call_s


def _time_seconds(spec: ProtocolSpec, figures: CostFigures) -> float:
    rivals = len(spec.baselines) - 1
    calls_s = min(spec.budget_s, (2 + rivals) * spec.max_samples * figures.timed_call_s)
    blocks = 4 + rivals  # candidate and baseline twice, each rival once
    replays_s = blocks * sum(_REPLAYS_S.get(regime, 0.0) for regime in spec.regimes)
    return calls_s + replays_s + sum(_RIVAL_S.get(baseline, 0.0) for baseline in spec.baselines)
