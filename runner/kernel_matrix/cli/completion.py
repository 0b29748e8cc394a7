"""Completion of values: each function returns the words that begin with what was typed."""

from __future__ import annotations

from collections.abc import Iterable

import typer

_PLANNED = ("plan", "run", "nightly")
"""Verbs whose filters select cells before they have results."""


def sandbox(incomplete: str) -> list[str]:
    """Complete the name of a sandbox."""
    from kernel_matrix.api.choices import sandbox_names

    return _beginning(incomplete, sandbox_names())


def dtype(incomplete: str) -> list[str]:
    """Complete the name of a dtype."""
    from kernel_matrix.api.choices import dtype_names

    return _beginning(incomplete, dtype_names())


def problem(incomplete: str) -> list[str]:
    """Complete the id of a problem."""
    from kernel_matrix.api.problems import find_problems
    from kernel_matrix.errors import KernelMatrixError

    try:
        return _beginning(incomplete, {problem.id for problem, _set in find_problems()})
    except KernelMatrixError:  # of a matrix that is being written
        return []


def filter_term(context: typer.Context, incomplete: str) -> list[str]:
    """Complete the key of a filter."""
    from kernel_matrix.api.choices import filter_keys

    keys = filter_keys(of_results=context.info_name not in _PLANNED)
    return _beginning(incomplete, (f"{key}=" for key in keys))


def _beginning(incomplete: str, words: Iterable[str]) -> list[str]:
    return sorted(word for word in words if word.startswith(incomplete))
