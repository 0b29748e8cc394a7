"""How long a cell will take, roughly: enough to order cells, to keep a deadline and to say hours or minutes.

A session is a start, per workload the verification calls and the timed calls (as many as the protocol allows at most,
or as the time budget has room for), a block per contestant of each further regime, and what rivals compile. A cell has
as many of them as lie in the middle between the fewest and the most that its protocol allows, and one more, untimed,
for each sanitizer. Samples that settle early make it quicker.
"""

from __future__ import annotations

from collections.abc import Mapping

from kernel_matrix.matrix import Protocol
from kernel_matrix.model.enums import Implementation, Language, Regime
from kernel_matrix.model.messages import ProtocolSpec
from kernel_matrix.platforms import CostFigures
from kernel_matrix.platforms.registry import get_platform

_REPLAYS_S: Mapping[Regime, float] = {Regime.WARM: 0.2, Regime.BURST: 0.3, Regime.SUSTAINED: 1.5}
"""One block of replayed calls of a millisecond each, see :mod:`kernel_matrix.inside.judge.replay_modes`."""
_RIVAL_S: Mapping[Implementation, float] = {Implementation.COMPILE: 15.0, Implementation.COMPILE_MAX_AUTOTUNE: 45.0}
"""What ``torch.compile`` takes for one workload."""
_SANITIZED = 10.0
"""How many times slower calls are under compute-sanitizer."""
_BUILD_S = {
    Language.CUDA: 10.0,
    Language.TRITON: 1.0,
    Language.TORCH: 0.0,
    Language.CUTE_DSL: 10.0,
    Language.TILELANG: 10.0,
    Language.HIP: 10.0,
}
"""Per cell: the share of a build that no other cell hides, or the first compilation of kernels."""
_COMPILE_S = {Language.CUDA: 60.0, Language.TRITON: 6.0}
"""A build of its own: nvcc, or Triton for every form of a kernel, import of torch included."""


def expected_compile_seconds(language: Language) -> float:
    """Expected wall time of a cell that is only compiled, seconds."""
    return _COMPILE_S.get(language, 0.0)


def expected_seconds(
    protocol: Protocol, *, workloads: int, platform: str, language: Language, sanitizers: int = 0
) -> float:
    """Expected wall time of one cell, seconds.

    :param workloads: how many workloads the cell has.
    :param sanitizers: under how many tools its candidate is run once more, where its platform has any.
    """
    spec, chosen = protocol.spec, get_platform(platform)
    figures = chosen.COST
    workload_s = _verify_seconds(spec, figures) + (_time_seconds(spec, figures) if spec.time else 0.0)
    session_s = figures.start_s + workloads * workload_s
    sanitized_s = figures.start_s + workloads * _SANITIZED * _verify_seconds(spec, figures)
    sessions = (protocol.sessions + max(protocol.sessions, protocol.max_sessions)) / 2
    checked_s = sanitizers * sanitized_s if chosen.SANITIZER else 0.0
    return _BUILD_S[language] + sessions * session_s + checked_s


def _verify_seconds(spec: ProtocolSpec, figures: CostFigures) -> float:
    rounds = 2 if spec.time else 1  # verified before and, when something was timed in between, after
    return rounds * spec.trials * len(spec.modes) * figures.call_s


def _time_seconds(spec: ProtocolSpec, figures: CostFigures) -> float:
    rivals = len(spec.baselines) - 1
    calls_s = min(spec.budget_s, (2 + rivals) * spec.max_samples * figures.timed_call_s)
    blocks = 4 + rivals  # candidate and baseline twice, each rival once
    replays_s = blocks * sum(_REPLAYS_S.get(regime, 0.0) for regime in spec.regimes)
    return calls_s + replays_s + sum(_RIVAL_S.get(baseline, 0.0) for baseline in spec.baselines)
