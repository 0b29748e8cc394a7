"""Cell selection of ``plan`` and ``run``: ``--filter KEY=GLOB[,GLOB]`` and ``--shard I/N``.

A term keeps the cells whose KEY matches one of its globs (``!=``: none of them). Several terms must all hold.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import translate

from kernel_matrix.errors import UsageError, suggestion
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
    "id": lambda cell: cell.id,
}
FILTER_KEYS = tuple(_VALUES)
_TERM = re.compile(r"(?P<key>[^=!]*)(?P<operator>!?=)(?P<globs>.*)", re.DOTALL)
_SHARD = re.compile(r"(\d+)/(\d+)")


@dataclass(frozen=True, slots=True)
class FilterTerm:
    """One condition on cells."""

    text: str
    """The term as written."""
    value: Callable[[Cell], str]
    pattern: re.Pattern[str]
    wanted: bool
    """``False`` for ``!=``."""

    def __call__(self, cell: Cell) -> bool:
        """Return whether ``cell`` satisfies the term."""
        return (self.pattern.match(self.value(cell)) is not None) is self.wanted


@dataclass(frozen=True, slots=True)
class CellFilter:
    """Conjunction of terms; without terms it keeps every cell."""

    terms: tuple[FilterTerm, ...] = field(default=())

    def __call__(self, cell: Cell) -> bool:
        """Return whether ``cell`` satisfies every term."""
        return all(term(cell) for term in self.terms)

    def __str__(self) -> str:
        return " ".join(term.text for term in self.terms)


def parse_filter(terms: Sequence[str]) -> CellFilter:
    """Read ``KEY=GLOB[,GLOB]`` and ``KEY!=GLOB[,GLOB]`` terms; globs are case-sensitive, an ``id`` may be a prefix.

    Raises:
        kernel_matrix.errors.UsageError: A term has another form or an unknown key.
    """
    return CellFilter(tuple(_parse_term(text) for text in terms))


def _parse_term(text: str) -> FilterTerm:
    found = _TERM.fullmatch(text)
    globs = [glob.strip() for glob in found["globs"].split(",") if glob.strip()] if found else []
    if found is None or not globs:
        raise UsageError(
            f"--filter {text!r} is not KEY=GLOB[,GLOB] or KEY!=GLOB[,GLOB]",
            next_step=f"Keys are {', '.join(FILTER_KEYS)}; e.g. --filter dtype=fp16,bf16 --filter 'problem=soft*'",
        )
    key = found["key"].strip()
    if key not in _VALUES:
        raise UsageError(
            f"--filter {text!r}: unknown key {key!r}{suggestion(key, FILTER_KEYS)}",
            next_step=f"Use one of {', '.join(FILTER_KEYS)}.",
        )
    if key == "id":
        globs = [f"{glob}*" for glob in globs]
    pattern = re.compile("|".join(translate(glob) for glob in globs))
    return FilterTerm(text, _VALUES[key], pattern, found["operator"] == "=")


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
