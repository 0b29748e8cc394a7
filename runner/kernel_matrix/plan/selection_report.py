"""Faults and warnings of a selection, collected and reported together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from kernel_matrix.config_files.faults import listed, quote
from kernel_matrix.errors import ConfigError, UsageError, suggestion
from kernel_matrix.matrix import Matrix
from kernel_matrix.matrix.load import position_of

_MOST_LISTED = 12  # names in one message; more would hide what is wrong


@dataclass(slots=True)
class SelectionReport:
    """Faults and warnings of one matrix's selection."""

    matrix: Matrix
    faults: list[tuple[str, str]] = field(default_factory=list)
    """Pairs of key path in the file and description."""
    warnings: list[str] = field(default_factory=list)

    def fault(self, key: str, text: str) -> None:
        """Report that something under ``key`` cannot be used."""
        self.faults.append((key, text))

    def warn(self, text: str) -> None:
        """Report that something is odd but usable."""
        self.warnings.append(text)

    @contextmanager
    def as_faults(self, key: str) -> Iterator[None]:
        """Report errors of the body as faults of ``key`` and continue."""
        try:
            yield
        except UsageError as error:
            self.fault(key, error.what)

    def unknown(self, key: str, word: object, what: str, known: Iterable[object]) -> None:
        """Report that ``word`` matches none of ``known``."""
        names = sorted({str(name) for name in known})
        there = f"there are: {few(names)}" if names else "there are none"
        self.fault(key, f"{quote(word)} matches no {what}; {there}{suggestion(str(word), names)}")

    def check_globs(self, globs: Sequence[str], known: Sequence[str], key: str, what: str) -> None:
        """Report each of ``globs`` that matches none of ``known``."""
        for j, glob in enumerate(globs):
            if not any(fnmatchcase(name, glob) for name in known):
                self.unknown(f"{key}[{j}]", glob, what, known)

    def check_words(self, words: Sequence[object], known: Iterable[object], key: str, what: str) -> None:
        """Report each of ``words`` that is not one of ``known``."""
        names = [word for word in known if word is not None]
        for j, word in enumerate(words):
            if word not in names:
                self.unknown(f"{key}[{j}]", word, what, names)

    def raise_faults(self, unreadable: Sequence[object]) -> None:
        """Raise one error with a line per fault, in file order, then one per item that could not be read.

        An item that a fault misses may be one of the latter.

        Raises:
            kernel_matrix.errors.ConfigError: There are faults.
        """
        if not self.faults:
            return
        path = self.matrix.path
        placed = sorted((position_of(path, key), key, text) for key, text in self.faults)
        faults = [f"{path}:{line}:{column} {key}: {text}" for (line, column), key, text in placed]
        raise ConfigError(
            [*faults, *(f"not read: {item}" for item in unreadable[:_MOST_LISTED])],
            next_step="kernel-matrix docs matrix describes every key.",
        )


def few(names: Sequence[str]) -> str:
    """Return the first of ``names`` as text, with a mark if there are more."""
    return listed(names[:_MOST_LISTED]) + (", …" if len(names) > _MOST_LISTED else "")
