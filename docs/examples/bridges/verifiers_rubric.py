"""Prime Intellect's ``verifiers``, up to 0.2: a rubric that has all rollouts of a group judged as one batch.

The column ``answer`` of the data set is the id of a problem of the service.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import verifiers as vf

from kernel_matrix import Client
from kernel_matrix.client.rewards import RewardMapping, log_speedup, masked, reward_function
from kernel_matrix.errors import ServiceError


def kernel_rubric(client: Client, mapping: RewardMapping | None = None, **request: Any) -> vf.Rubric:
    """Return a rubric with one reward.

    Args:
        client: A client of the service.
        mapping: From a result to a reward; None: :func:`log_speedup`.
        request: Further fields of each request, such as ``tier``.
    """
    mapping = log_speedup() if mapping is None else mapping

    async def kernel_reward(
        completions: Sequence[Sequence[Mapping[str, Any]]], answers: Sequence[str], states: Sequence[dict[str, Any]]
    ) -> list[float]:
        # The rollouts of a group are answers to one prompt.
        judge = reward_function(client, mapping=mapping, problem=answers[0], **request)
        try:
            rewards = await asyncio.to_thread(judge, completions)
        except ServiceError:  # the rubric would make it 0 for everybody
            rewards = [None] * len(completions)
        values, is_known = masked(rewards)  # the mean stands for what is not known: its advantage is 0
        for state, known in zip(states, is_known, strict=True):
            if not known:
                state["error"] = vf.InfraError("the candidate was not judged")  # trainers leave such rollouts out
        return values

    return vf.Rubric(funcs=[kernel_reward])
