"""Rewards: numbers for reinforcement learning and search, made from the results of evaluations.

A mapping turns a result into a number, or into None where nothing is known about the candidate: the machine or the
problem is at fault, the evaluation was cancelled, or it has not ended. None is not 0: leave it out of the batch, as
:func:`masked` does. A candidate that is known to be wrong never gets None.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias, TypeGuard

from kernel_matrix.client.exchanges import Evaluation
from kernel_matrix.errors import ServiceRefusedError, UsageError
from kernel_matrix.model.enums import Fault, Stage, Status, Verdict
from kernel_matrix.model.evaluation import EvaluationResult

RewardMapping: TypeAlias = Callable[[EvaluationResult | None], "float | None"]

_LOADED: Final = {stage.value for stage in (Stage.VERIFY, Stage.TIME, Stage.DONE)}
_CHEATED: Final = {
    status.value for status in (Status.POLICY_VIOLATION, Status.PROTOCOL_VIOLATION, Status.TIMING_MISMATCH)
}
_UNPROCESSABLE: Final = 422
_FENCED: Final = re.compile(r"^```[^\n]*\n(.*?)^```", re.DOTALL | re.MULTILINE)
_NOT_JUDGED: Final = EvaluationResult(
    Status.COMPILE_ERROR.value,
    Fault.CANDIDATE.value,
    Stage.BUILD.value,
    {"message": "the service takes no such source"},
)


class BatchEvaluator(Protocol):
    """The part of :class:`kernel_matrix.Client` that rewards need."""

    def submit_many(self, requests: Iterable[Mapping[str, Any]]) -> Sequence[Evaluation]:
        """Submit candidates, all or none of up to 1,000."""
        ...

    def wait(self, ids: Iterable[str], timeout_s: float | None = None) -> Sequence[Evaluation]:
        """Wait until evaluations have ended."""
        ...


def speedup_bound(result: EvaluationResult) -> float | None:
    """Return the least speed-up over eager that is believed, of the workload where it is least.

    That of a workload is the lower end of the sessions' interval (``verdict_low``), or with one session ``speedup``,
    and never more than ``speedup_limit``, which the judge's own clock allows. None if a workload has no such value.
    """
    bounds = [_bound_of(columns) for columns in result.workloads.values()]
    known = [bound for bound in bounds if bound is not None]
    return min(known) if known and len(known) == len(bounds) else None


def binary(result: EvaluationResult | None) -> float | None:
    """Return 1 for a right candidate, 0 for a wrong one."""
    return float(result.is_right) if _is_compared(result) else None


def fast_p(p: float) -> RewardMapping:
    """Return a mapping: 1 for a right candidate whose :func:`speedup_bound` is above ``p``, else 0."""

    def mapping(result: EvaluationResult | None) -> float | None:
        if not _is_compared(result):
            return None
        bound = speedup_bound(result) if result.is_right else None
        return float(bound is not None and bound > p)

    return mapping


def log_speedup(*, least: float = 0.25, most: float = 8.0) -> RewardMapping:
    """Return a mapping: the binary logarithm of the :func:`speedup_bound`.

    A right candidate gets log2 of its bound, clamped to ``least`` and ``most``; without a bound, log2 of ``least``, so
    that no candidate gains by being hard to time. A wrong one gets one less than log2 of ``least``.

    Raises:
        UsageError: The clamps are not positive and in order.
    """
    if not 0 < least < most:
        raise UsageError(f"0 < least < most is needed, not least={least} and most={most}")

    def mapping(result: EvaluationResult | None) -> float | None:
        if not _is_compared(result):
            return None
        if not result.is_right:
            return math.log2(least) - 1
        return math.log2(min(max(speedup_bound(result) or least, least), most))

    return mapping


def staged(*, compiled: float = 0.1, right: float = 0.3, faster: float = 0.6) -> RewardMapping:
    """Return a mapping that adds up what a candidate has achieved.

    Args:
        compiled: For one that was built and loaded, and was not caught cheating.
        right: For one whose outputs are right.
        faster: For one with the verdict ``faster`` in every workload.
    """

    def mapping(result: EvaluationResult | None) -> float | None:
        if result is None or not result.is_score:
            return None
        verdicts = {columns.get("verdict") for columns in result.workloads.values()}
        reward = compiled if _is_loaded(result) else 0.0
        reward += right if result.is_right else 0.0
        return reward + (faster if result.is_right and verdicts == {Verdict.FASTER.value} else 0.0)

    return mapping


def masked(rewards: Sequence[float | None]) -> tuple[list[float], list[bool]]:
    """Return rewards without None, and for each whether it is one.

    The mean of the others stands for None: it moves no mean of the batch, and its own advantage is 0.
    """
    known = [reward for reward in rewards if reward is not None]
    mean = sum(known) / len(known) if known else 0.0
    return [mean if reward is None else reward for reward in rewards], [reward is not None for reward in rewards]


def last_code_block(completion: str) -> str:
    """Return the last fenced block of Markdown; the whole text if there is none."""
    blocks = _FENCED.findall(completion)
    return str(blocks[-1]) if blocks else completion


def submit_each(
    client: BatchEvaluator, requests: Sequence[Mapping[str, Any]]
) -> list[Evaluation | ServiceRefusedError]:
    """Submit requests, with an error for each that the service refuses by itself.

    A batch is refused as a whole, so it is halved until those that are refused stand alone.
    """
    try:
        return list(client.submit_many(requests))
    except ServiceRefusedError as error:
        if error.status != _UNPROCESSABLE:
            raise
        if len(requests) == 1:
            return [error]
    half = len(requests) // 2
    return [*submit_each(client, requests[:half]), *submit_each(client, requests[half:])]


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardFunction:
    """Function from completions to rewards; see :func:`reward_function`."""

    client: BatchEvaluator
    mapping: RewardMapping
    extract: Callable[[str], str]
    wait_s: float | None
    request: Mapping[str, Any]

    __name__ = "kernel_matrix"
    """Trainers name a column of their logs by it."""

    def __call__(self, completions: Sequence[str | Sequence[Mapping[str, Any]]], **_: object) -> list[float | None]:
        """Return the reward of each completion.

        Args:
            completions: Texts, or conversations whose last message has the text.
            _: Columns of the data set, which trainers pass and this leaves alone.

        Raises:
            ServiceRefusedError: The service refuses every source, such as for an unknown problem.
            ServiceError: The service failed, or cannot be reached.
        """
        return [self.mapping(result) for result in self.results(completions)]

    def results(self, completions: Sequence[str | Sequence[Mapping[str, Any]]]) -> list[EvaluationResult | None]:
        """Return the result of each completion; None where there is none after ``wait_s``."""
        sources = [self.extract(one if isinstance(one, str) else str(one[-1]["content"])) for one in completions]
        wanted = list(dict.fromkeys(source for source in sources if source.strip()))
        submitted = submit_each(self.client, [{**self.request, "source": source} for source in wanted])
        accepted = [one for one in submitted if isinstance(one, Evaluation)]
        refused = [one for one in submitted if isinstance(one, ServiceRefusedError)]
        if refused and not accepted:
            raise refused[0]
        ended = {one.id: one.result for one in self.client.wait([one.id for one in accepted], self.wait_s)}
        results = {
            source: ended[one.id] if isinstance(one, Evaluation) else _NOT_JUDGED
            for source, one in zip(wanted, submitted, strict=True)
        }
        return [results.get(source, _NOT_JUDGED) for source in sources]


def reward_function(
    client: BatchEvaluator,
    *,
    mapping: RewardMapping,
    extract: Callable[[str], str] = last_code_block,
    wait_s: float | None = None,
    **request: Any,
) -> RewardFunction:
    """Return a function that has a batch of completions judged and returns their rewards.

    An empty source, or one that the service does not accept although it accepts others of the batch, counts as one that
    does not compile.

    Args:
        client: A :class:`kernel_matrix.Client`.
        mapping: From a result to a reward, such as :func:`binary` or ``fast_p(1.1)``.
        extract: Finds the source in a completion.
        wait_s: How long to wait for a batch, seconds; what has not ended gets None. None: until the end.
        request: Fields of each request beside ``source``: ``problem``, and perhaps further ones.
    """
    return RewardFunction(client=client, mapping=mapping, extract=extract, wait_s=wait_s, request=request)


def _is_compared(result: EvaluationResult | None) -> TypeGuard[EvaluationResult]:
    """Return whether it is known if the candidate is right; of one that was only compiled it is not."""
    return result is not None and result.is_score and result.status != Status.COMPILED.value


def _is_loaded(result: EvaluationResult) -> bool:
    return result.status == Status.COMPILED.value or (result.stage in _LOADED and result.status not in _CHEATED)


def _bound_of(columns: Mapping[str, Any]) -> float | None:
    shown, limit = columns.get("verdict_low", columns.get("speedup")), columns.get("speedup_limit")
    return None if shown is None or limit is None else float(min(shown, limit))
