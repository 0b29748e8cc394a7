"""What the listener of a generation gets: its size, what happens, and the summary."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kernel_matrix.generation import GenerationAttempt
from kernel_matrix.generation.ledger import LedgerLine


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationStarted:
    """The size of a generation."""

    problems: int
    samples: int
    """Samples of each problem and round."""
    rounds: int
    stored: int
    """Answers in the ledger."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerReceived:
    """A request was answered, now or in an earlier process."""

    attempt: GenerationAttempt
    line: LedgerLine
    was_stored: bool
    """It was answered in an earlier process, and not sent again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateJudged:
    """The evaluation of a candidate has ended; ``attempt.result`` is not None."""

    attempt: GenerationAttempt


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationNote:
    """A line about requests, for people."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationResult:
    """The end of a generation; also the last thing that its listener gets."""

    folder: Path
    answers: int
    """Answers that were used, those from the ledger included."""
    sent: int
    """Answers that came in this process."""
    without_answer: int
    """Requests that were given up, or not sent because the budget was spent."""
    without_code: int
    candidates: int
    right: int
    machine_failed: int
    """Candidates whose evaluation failed for another reason than the candidate; they have no score."""
    tokens: int
    """Of all answers in the ledger, as are the following."""
    usd: float | None
    """None if the price of an answer is unknown."""
    best: Mapping[str, BestCandidate] = field(default_factory=dict)
    """Problem → its fastest right candidate; without problems that have none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BestCandidate:
    """The fastest right candidate of a problem."""

    name: str
    speedup: float | None


GenerationProgress = GenerationStarted | AnswerReceived | CandidateJudged | GenerationNote | GenerationResult
"""Everything that a listener may get."""
GenerationListener = Callable[[GenerationProgress], None]
"""Called in the thread that called the generation. What it raises ends the generation; what was paid for is kept."""
