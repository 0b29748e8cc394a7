"""Registry of the questions behind ``kernel-matrix analyze`` and the report's pages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import polars as pl

from kernel_matrix.analysis.tables import Tables
from kernel_matrix.errors import UsageError
from kernel_matrix.plugins import Registry


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionOptions:
    """Options of a question."""

    by: tuple[str, ...] = ()
    """Names of :data:`kernel_matrix.analysis.slices.SLICES`: one row per combination; one row for all if empty.
    :func:`ask` drops repetitions."""
    platforms: tuple[str, ...] = ()
    """GPUs (matrix names) that are compared; all in the tables if empty."""
    thresholds: tuple[float, ...] = (0.0, 1.0, 1.5, 2.0)
    """The p of ``fast_p``."""
    draws: tuple[int, ...] = (1, 5, 10)
    """The k of ``pass@k`` and ``fast_p@k``."""
    margin: float = 0.02
    """Differences up to this share do not matter in practice."""
    best_known: Path | None = None
    """A frozen table of best-known times; None: one is made from the tables."""
    weights: Path | None = None
    """Weights of problems in the means of ``gpus``; None: all are equal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One table of an answer, with the explanations that a reader needs."""

    name: str
    """Short and stable name; the key in ``--json``."""
    title: str
    table: pl.DataFrame
    meanings: Mapping[str, str] = field(default_factory=dict)
    """Column → its meaning, its unit, and the source of its formula."""
    notes: Sequence[str] = ()
    """Omissions with their reasons, and cautions; whole sentences."""
    statements: Sequence[str] = ()
    """The answer in words, to be read before the table; whole sentences."""


Ask = Callable[[Tables, QuestionOptions], list[Answer]]

QUESTIONS: Registry[Ask] = Registry(
    "question",
    "kernel_matrix.questions",
    {
        "scores": "kernel_matrix.analysis.scores:scores",
        "portability": "kernel_matrix.analysis.portability:portability",
        "ranks": "kernel_matrix.analysis.ranks:ranks",
        "gpus": "kernel_matrix.analysis.gpu_ratios:gpu_ratios",
        "scaling": "kernel_matrix.analysis.scaling:scaling",
        "sensitivity": "kernel_matrix.analysis.sensitivity:sensitivity",
        "variance": "kernel_matrix.analysis.variance:variance",
        "sessions": "kernel_matrix.analysis.session_counts:session_counts",
        "attribution": "kernel_matrix.analysis.attribution:attribution",
        "code": "kernel_matrix.analysis.source_code:code",
        "builds": "kernel_matrix.analysis.builds:builds",
        "budgets": "kernel_matrix.analysis.budgets:budgets",
        "ab": "kernel_matrix.analysis.paired_groups:ab",
        "drift": "kernel_matrix.analysis.changepoints:drift",
    },
    members=("__call__", "__doc__"),
)
"""Question → the function that answers it; other packages add metrics of their own as entry points."""


def ask(question: str, tables: Tables, request: QuestionOptions) -> list[Answer]:
    """Answer ``question``.

    Raises:
        UsageError: The question is unknown, or does not support an option.
        PluginError: The question is one of another package and cannot be used.
        NothingSelectedError: The tables hold no data for it.
    """
    if question not in QUESTIONS:
        raise UsageError(f"unknown question {question!r}", next_step=f"Ask one of {', '.join(QUESTIONS)}.")
    return QUESTIONS.load(question)(tables, replace(request, by=tuple(dict.fromkeys(request.by))))
