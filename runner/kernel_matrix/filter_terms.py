"""The language of ``--filter``: terms ``KEY=GLOB[,GLOB]`` and ``KEY!=GLOB[,GLOB]``, all of which must hold."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase, translate

from kernel_matrix.errors import UsageError, suggestion

_TERM = re.compile(r"(?P<key>[^=!]*)(?P<operator>!?=)(?P<globs>.*)", re.DOTALL)
_SHORTENED = ("id", "run")
"""Keys whose values are long: the beginning of one is enough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterTerm:
    """One condition on the value of a key."""

    text: str
    """The term as written."""
    key: str
    globs: tuple[str, ...]
    """Case-sensitive."""
    pattern: re.Pattern[str]
    """All globs."""
    wanted: bool
    """``False`` for ``!=``."""

    def matches(self, value: str) -> bool:
        """Return whether ``value`` satisfies the term."""
        return (self.pattern.match(value) is not None) is self.wanted


def parse_terms(terms: Iterable[str], keys: Sequence[str]) -> tuple[FilterTerm, ...]:
    """Read terms whose keys are among ``keys``; an id may be a prefix.

    Raises:
        kernel_matrix.errors.UsageError: A term has another form or an unknown key.
    """
    return tuple(_parse(text, keys) for text in terms)


def _parse(text: str, keys: Sequence[str]) -> FilterTerm:
    found = _TERM.fullmatch(text)
    globs = [glob.strip() for glob in found["globs"].split(",") if glob.strip()] if found else []
    if found is None or not globs:
        raise UsageError(
            f"--filter {text!r} is not KEY=GLOB[,GLOB] or KEY!=GLOB[,GLOB]",
            next_step=f"Keys are {', '.join(keys)}; e.g. --filter dtype=fp16,bf16 --filter 'problem=soft*'",
        )
    key = found["key"].strip()
    if key not in keys:
        raise UsageError(
            f"--filter {text!r}: unknown key {key!r}{suggestion(key, keys)}",
            next_step=f"Keys are {', '.join(keys)}.",
        )
    if key in _SHORTENED:
        globs = [f"{glob}*" for glob in globs]
    pattern = re.compile("|".join(map(translate, globs)))
    return FilterTerm(text=text, key=key, globs=tuple(globs), pattern=pattern, wanted=found["operator"] == "=")


def explain_unmatched(terms: Iterable[FilterTerm], values_of: Callable[[str], Iterable[str]]) -> str:
    """Return for example ``no problem is 'ReLU'; did you mean 'relu'?``: globs that match none of their key's values.

    Args:
        terms: The terms.
        values_of: Returns all values of a key.
    """
    return ", ".join(_unmatched(terms, values_of))


def _unmatched(terms: Iterable[FilterTerm], values_of: Callable[[str], Iterable[str]]) -> Iterator[str]:
    for term in terms:
        if not term.wanted:
            continue
        values = sorted({value for value in values_of(term.key) if value})
        for glob in term.globs:
            if not any(fnmatchcase(value, glob) for value in values):
                shown = glob.removesuffix("*") if term.key in _SHORTENED else glob
                yield f"no {term.key} is {shown!r}{suggestion(shown, values)}"
