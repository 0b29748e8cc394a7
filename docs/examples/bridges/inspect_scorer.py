"""Inspect (``inspect_ai``): a scorer that has the model's last code block judged.

A sample's target is the id of a problem of the service. Use it like any other scorer::

    Task(dataset=[Sample(input="Write a faster softmax …", target="softmax")], scorer=kernel_scorer())
"""

from __future__ import annotations

from inspect_ai.scorer import Score, Scorer, Target, mean, scorer, stderr
from inspect_ai.solver import TaskState

from kernel_matrix import AsyncClient
from kernel_matrix.client.rewards import last_code_block, staged

MAPPING = staged(compiled=0.1, right=0.3, faster=0.6)


@scorer(metrics=[mean(), stderr()])
def kernel_scorer(address: str = "http://127.0.0.1:8000", wait_s: float | None = None) -> Scorer:
    """Return a scorer that asks a service.

    Args:
        address: The service's; its token is in ``KERNEL_MATRIX_TOKEN``, so that no log has it.
        wait_s: How long to wait for one evaluation, seconds; None: until the end.
    """

    async def score(state: TaskState, target: Target) -> Score:
        source = last_code_block(state.output.completion)
        if not source.strip():
            return Score(value=0.0, explanation="there is no source")
        async with AsyncClient(address) as client:
            evaluation = await client.evaluate(problem=target.text, source=source, wait_s=wait_s)
        result, reward = evaluation.result, MAPPING(evaluation.result)
        told = {
            "answer": source,
            "explanation": evaluation.state if result is None else f"{result.status}: {dict(result.evidence)}",
            "metadata": {"evaluation": evaluation.id, "record": result.record if result else None},
        }
        # Unscored is not 0: no metric counts what failed because of a machine or a problem.
        return Score.unscored(reason="scoring_failed", **told) if reward is None else Score(value=reward, **told)

    return score
