"""A strategy of generation: half of the samples continue from the best attempt, the others begin anew."""

from collections.abc import Sequence

from kernel_matrix.generation import GenerationAttempt


def half_anew(attempts: Sequence[GenerationAttempt], samples: int, /) -> list[GenerationAttempt | None]:
    """Return the best attempt for every other sample, and None for those between."""
    best = max(attempts, key=lambda attempt: attempt.rank, default=None)
    return [None if sample % 2 else best for sample in range(samples)]
