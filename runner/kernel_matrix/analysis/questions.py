"""What can be asked of the tables: the registry behind ``kernel-matrix analyze`` and the report's pages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Final

import polars as pl

from kernel_matrix.analysis.tables import Tables
from kernel_matrix.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionOptions:
    """What is asked for, beside the question itself."""

    by: tuple[str, ...] = ()
    """Names of :data:`kernel_matrix.analysis.slices.SLICES`: one row per combination; none: one row for all.

    :func:`ask` drops repetitions; what answers gets each name once."""
    platforms: tuple[str, ...] = ()
    """The declared set of GPUs (matrix names) that portability is over; none: all that are in the tables."""
    thresholds: tuple[float, ...] = (0.0, 1.0, 1.5, 2.0)
    """The p of ``fast_p``."""
    draws: tuple[int, ...] = (1, 5, 10)
    """The k of ``pass@k`` and ``fast_p@k``."""
    margin: float = 0.02
    """Differences up to this share are the same for all practical purposes."""
    best_known: Path | None = None
    """A frozen table of best-known times; null: it is made of these tables, and its hash is told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One table of an answer, complete with what a reader has to know."""

    name: str
    """Short and stable: what ``--json`` calls it."""
    title: str
    table: pl.DataFrame
    meanings: Mapping[str, str] = field(default_factory=dict)
    """Column → what it means, its unit, and where its formula comes from."""
    notes: Sequence[str] = ()
    """What was left out and why, what cannot be told, what to be careful with; whole sentences."""


Ask = Callable[[Tables, QuestionOptions], list[Answer]]

_WHERE: Final = {
    "scores": "kernel_matrix.analysis.scores:scores",
    "portability": "kernel_matrix.analysis.portability:portability",
    "ranks": "kernel_matrix.analysis.ranks:ranks",
    "sensitivity": "kernel_matrix.analysis.sensitivity:sensitivity",
    "variance": "kernel_matrix.analysis.variance:variance",
    "attribution": "kernel_matrix.analysis.attribution:attribution",
    "drift": "kernel_matrix.analysis.changepoints:drift",
}
"""Question → the function that answers it; imported when it is asked."""

QUESTIONS: Final = tuple(_WHERE)


def ask(question: str, tables: Tables, request: QuestionOptions) -> list[Answer]:
    """The answer to ``question``.

    :raises UsageError: for a question that is none, or a request that it cannot serve.
    :raises NothingSelectedError: where the tables hold nothing that it is about.
    """
    return _function(question)(tables, replace(request, by=tuple(dict.fromkeys(request.by))))


def _function(question: str) -> Ask:
    if question not in _WHERE:
        raise UsageError(f"{question!r} is no question", next_step=f"Ask one of {', '.join(QUESTIONS)}.")
    module, _, name = _WHERE[question].partition(":")
    found: Ask = getattr(import_module(module), name)
    return found
