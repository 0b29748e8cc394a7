"""Gymnasium and OpenEnv: an environment whose action is a source, without a dependency on either.

``reset`` and ``step`` return what Gymnasium's do. For OpenEnv, return the last observation with ``done`` and ``reward``
as its fields; there a reward may be None, so that nothing needs to be masked.
"""

from __future__ import annotations

from typing import Any

from kernel_matrix import Client
from kernel_matrix.client.rewards import RewardMapping, log_speedup, reward_function

Observation = dict[str, Any]


class KernelEnvironment:
    """Lets an agent improve one kernel in a few turns; the observation is what the judge said of the last one.

    Args:
        client: A client of the service.
        problem: Id of a problem of the service.
        mapping: From a result to a reward; None: :func:`log_speedup`.
        turns: Sources that an agent may send in an episode.
    """

    def __init__(
        self, client: Client, problem: str, *, mapping: RewardMapping | None = None, turns: int = 4, **request: Any
    ) -> None:
        self._judge = reward_function(client, mapping=mapping or log_speedup(), problem=problem, **request)
        self._start = {"problem": problem, "turns": turns}
        self._turn = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Observation, dict[str, Any]]:
        """Begin an episode; neither seed nor options have a meaning here."""
        del seed, options
        self._turn = 0
        return dict(self._start), {}

    def step(self, action: str) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Have a source judged; returns observation, reward, terminated, truncated, and what else is known."""
        (result,) = self._judge.results([action])
        reward = self._judge.mapping(result)
        self._turn += 1
        observation = {**self._start, "turn": self._turn}
        if result is not None and reward is not None:
            observation |= {"status": result.status, "stage": result.stage, "evidence": dict(result.evidence)}
            observation["workloads"] = {name: dict(columns) for name, columns in result.workloads.items()}
        # An episode in which nothing is known about a step is cut off; its last reward says nothing.
        is_over = self._turn == self._start["turns"]
        return observation, reward or 0.0, is_over, reward is None, {"masked": reward is None}
