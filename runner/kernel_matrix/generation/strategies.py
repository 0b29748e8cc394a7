"""Strategies: from which attempts the samples of the next round start.

A strategy is a function. Another package adds one by an entry point in the group
``kernel_matrix.generation_strategies``. It must depend on its arguments alone: a generation that goes on after a kill
asks it again, and finds the answers that it has paid for only if the answer is the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from kernel_matrix.generation import GenerationAttempt
from kernel_matrix.plugins import Registry


class GenerationStrategy(Protocol):
    """Function that chooses the parents of a round's samples."""

    def __call__(self, attempts: Sequence[GenerationAttempt], samples: int, /) -> Sequence[GenerationAttempt | None]:
        """Return the parent of each sample of the next round; None asks for a new attempt.

        Args:
            attempts: Usable attempts at one problem, by round and sample; without failures of the machine.
            samples: Number of samples. More parents than these are not used, and fewer make a smaller round.
        """
        ...


def sample_repeatedly(attempts: Sequence[GenerationAttempt], samples: int, /) -> list[GenerationAttempt | None]:  # noqa: ARG001  # of the protocol
    """Start every sample anew."""
    return [None] * samples


def refine(attempts: Sequence[GenerationAttempt], samples: int, /) -> list[GenerationAttempt | None]:
    """Continue each sample from its own latest attempt."""
    latest = {attempt.sample: attempt for attempt in attempts}
    return [latest.get(sample) for sample in range(samples)]


def continue_best(attempts: Sequence[GenerationAttempt], samples: int, /) -> list[GenerationAttempt | None]:
    """Continue all samples from the best attempt so far: the fastest right one, else the one that came furthest."""
    return [max(attempts, key=lambda attempt: attempt.rank, default=None)] * samples


STRATEGIES: Registry[GenerationStrategy] = Registry(
    "strategy",
    "kernel_matrix.generation_strategies",
    {"repeated": sample_repeatedly, "refine": refine, "best-first": continue_best},
    members=("__call__",),
)
"""Name → strategy."""
