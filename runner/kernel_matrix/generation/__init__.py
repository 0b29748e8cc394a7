"""Generation of candidates by language models: prompts, requests, answers, and rounds of judging and improving.

Reading order: :mod:`.rounds` (the loop), :mod:`.strategies` (from what the next round starts), :mod:`.prompts`,
:mod:`.chat` (requests over HTTP), :mod:`.answers` (code in answers), :mod:`.ledger` (what was paid for is kept),
:mod:`.prices` and :mod:`.budget`. Judging is behind :class:`CandidateEvaluator`;
:mod:`.service_evaluator` has a service do it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import exp, log
from typing import Protocol

from kernel_matrix.model.enums import Stage
from kernel_matrix.model.evaluation import EvaluationResult

_STAGES = [stage.value for stage in Stage]


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratedCandidate:
    """Source code from an answer of a model."""

    problem: str
    name: str
    """Name of the file without its suffix."""
    source: str
    suffix: str = ".py"
    """``.py`` for a module with ``ModelNew``, ``.cu`` or ``.hip`` for native code."""


class CandidateEvaluator(Protocol):
    """Judge of generated candidates."""

    def evaluate(
        self, candidates: Sequence[GeneratedCandidate], /
    ) -> Iterator[tuple[GeneratedCandidate, EvaluationResult]]:
        """Judge candidates, and yield the result of each as soon as it is known; one that has none is left out."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationAttempt:
    """One answer of a model, and what became of it."""

    problem: str
    name: str
    sample: int
    """Number of the sample in its round, from 0."""
    round: int
    """Number of the round, from 0."""
    parent: str | None = None
    """Name of the attempt that it was made from."""
    candidate: GeneratedCandidate | None = None
    """None if the answer has no code."""
    no_code: str = ""
    """Reason why the answer has no code; where there is one, ``candidate`` is None."""
    result: EvaluationResult | None = None
    """None before the evaluation, and if there is no code."""

    @property
    def judged(self) -> GeneratedCandidate:
        """The candidate; for an answer without code one in its place, which fails and makes its cost known."""
        if self.candidate is not None:
            return self.candidate
        # Its name makes it another source than that of any other answer, whose cost is another one.
        source = f"# The answer for {self.name} holds no code.\n"
        return GeneratedCandidate(problem=self.problem, name=self.name, source=source)

    @property
    def is_usable(self) -> bool:
        """True if the next round may start from it: it has no code, or a result that says something about the code."""
        return self.candidate is None or (self.result is not None and self.result.is_score)

    @property
    def is_right(self) -> bool:
        """True if its outputs are right."""
        return self.result is not None and self.result.is_right

    @property
    def speedup(self) -> float | None:
        """Geometric mean of the speed-ups over the workloads; None if there are none."""
        if self.result is None:
            return None
        speedups = [float(row["speedup"]) for row in self.result.workloads.values() if row.get("speedup")]
        return exp(sum(map(log, speedups)) / len(speedups)) if speedups else None

    @property
    def rank(self) -> tuple[bool, float, int]:
        """Value by which attempts are ordered: right ones by speed-up, wrong ones by how far they came."""
        stage = self.result.stage if self.result is not None else None
        return self.is_right, self.speedup or 0.0 if self.is_right else 0.0, _STAGES.index(stage) if stage else -1
