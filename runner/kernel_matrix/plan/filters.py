"""Cell selection of ``plan`` and ``run``: ``--filter KEY=GLOB[,GLOB]`` and ``--shard I/N``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from kernel_matrix.errors import UsageError
from kernel_matrix.filter_terms import FilterTerm, explain_unmatched, parse_terms
from kernel_matrix.plan.cell import Cell

_VALUES: dict[str, Callable[[Cell], str]] = {
    "gpu": lambda cell: cell.gpu.name,
    "toolchain": lambda cell: cell.toolchain.name,
    "dtype": lambda cell: cell.dtype.value,
    "problem": lambda cell: cell.problem.id,
    "candidate": lambda cell: cell.candidate.id,
    "language": lambda cell: cell.candidate.language.value,
    "category": lambda cell: cell.problem.category,
    "level": lambda cell: "" if cell.problem.level is None else str(cell.problem.level),
    "ranks": lambda cell: str(cell.problem.ranks),
    "id": lambda cell: cell.id,
}
FILTER_KEYS: Final = tuple(_VALUES)
_SHARD = re.compile(r"(\d+)/(\d+)")


@dataclass(frozen=True, slots=True)
class CellFilter:
    """Conjunction of terms; without terms it keeps every cell."""

    terms: tuple[FilterTerm, ...] = field(default=())

    def __call__(self, cell: Cell) -> bool:
        """Return whether ``cell`` satisfies every term."""
        return all(term.matches(_VALUES[term.key](cell)) for term in self.terms)

    def __str__(self) -> str:
        return " ".join(term.text for term in self.terms)

    def explain_unmatched(self, cells: Iterable[Cell]) -> str:
        """Say which globs match none of ``cells``, and what may have been meant; empty if each matches one."""
        values: dict[str, set[str]] = {term.key: set() for term in self.terms}
        for cell in cells if values else ():
            for key, found in values.items():
                found.add(_VALUES[key](cell))
        return explain_unmatched(self.terms, values.__getitem__)


def parse_filter(terms: Sequence[str]) -> CellFilter:
    """Read ``KEY=GLOB[,GLOB]`` and ``KEY!=GLOB[,GLOB]`` terms; globs are case-sensitive, an ``id`` may be a prefix.

    Raises:
        kernel_matrix.errors.UsageError: A term has another form or an unknown key.
    """
    return CellFilter(parse_terms(terms, FILTER_KEYS))


def parse_shard(text: str) -> tuple[int, int]:
    """Read ``I/N`` with 1 ≤ I ≤ N.

    Raises:
        kernel_matrix.errors.UsageError: The text has another form.
    """
    found = _SHARD.fullmatch(text)
    if found and 1 <= int(found[1]) <= int(found[2]):
        return int(found[1]), int(found[2])
    raise UsageError(
        f"--shard {text!r} is not I/N with 1 ≤ I ≤ N", next_step="Write for example --shard 1/4 on the first of four."
    )


def shard(cells: Iterable[Cell], index: int, count: int) -> Iterator[Cell]:
    """Yield part ``index`` (from 1) of ``count`` parts of ``cells``; a cell's part depends only on its id."""
    return (cell for cell in cells if int(cell.id[:8], 16) % count == index - 1)
