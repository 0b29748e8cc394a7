"""Ask a question about all results together."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kernel_matrix.analysis.bestknown import BestKnown, freeze
from kernel_matrix.analysis.questions import QUESTIONS, Answer, QuestionOptions, ask
from kernel_matrix.api.results import Results, as_results

__all__ = ["QUESTIONS", "Answer", "BestKnown", "analyze", "freeze_best_known"]


def analyze(
    question: str,
    results: Results | str | Path = "results",
    *,
    by: Sequence[str] = (),
    platforms: Sequence[str] = (),
    thresholds: Sequence[float] = (),
    draws: Sequence[int] = (),
    margin: float | None = None,
    best_known: str | Path | None = None,
    weights: str | Path | None = None,
) -> list[Answer]:
    """Answer a question such as ``scores``, ``portability``, ``gpus`` or ``variance``.

    Args:
        question: One of ``kernel_matrix.QUESTIONS``.
        results: Opened results, or a folder.
        by: Slices: one row of the answer per combination of their values; one row for all where none is named.
        platforms: The GPUs that are compared; all by default.
        thresholds: The p of ``fast_p``.
        draws: The k of ``pass@k``.
        margin: Differences up to this share are none.
        best_known: A frozen table of best-known times, for portability.
        weights: A file with weights of problems and categories, for gpus.

    Raises:
        UsageError: The question or an option is not known.
        NothingSelectedError: The results hold nothing that it is about.

    Examples:
        >>> import kernel_matrix
        >>> answers = kernel_matrix.analyze("scores", "results/example-h200.kmz", by=["dtype"])
        >>> answers[0].table.columns[:2]
        ['dtype', 'problems']
    """
    given: dict[str, Any] = {
        "by": tuple(by),
        "platforms": tuple(platforms),
        "thresholds": tuple(thresholds),
        "draws": tuple(draws),
        "margin": margin,
        "best_known": Path(best_known) if best_known else None,
        "weights": Path(weights) if weights else None,
    }
    # What is not given keeps the default that QuestionOptions has for it.
    options = QuestionOptions(**{name: value for name, value in given.items() if value not in (None, ())})
    opened = as_results(results)  # kept until the answer is there: without it the merged files are removed
    return ask(question, opened.tables, options)


def freeze_best_known(results: Results | str | Path, path: str | Path) -> BestKnown:
    """Write the best times of these results to a file that :func:`analyze` takes as ``best_known``.

    Raises:
        StoreError: The file cannot be written.
    """
    opened = as_results(results)  # as above
    return freeze(opened.tables.cells, Path(path))
