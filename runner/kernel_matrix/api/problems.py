"""Read problems and candidates; nothing of theirs is run."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TypeVar

from kernel_matrix.bundled import BUNDLED_PROBLEMS
from kernel_matrix.errors import NothingSelectedError, UsageError, suggestion
from kernel_matrix.inside.atomic_write import replace_file
from kernel_matrix.matrix import ProblemSet
from kernel_matrix.matrix.load import load_matrix
from kernel_matrix.sources import (
    SOURCES,
    Candidate,
    LoadedSource,
    Problem,
    Workload,
    load_candidates,
    load_source,
)
from kernel_matrix.sources.folder import PROBLEM_FILE, REFERENCE_FILE

__all__ = [
    "MATRIX_FILE",
    "Candidate",
    "LoadedSource",
    "Problem",
    "Workload",
    "find_one",
    "find_problems",
    "load_problems",
    "matching",
    "refuse_unreadable",
    "write_problem",
]

MATRIX_FILE = Path("matrix.toml")
PROBLEM_FOLDER = Path("problems")

T = TypeVar("T", Problem, Candidate)


def load_problems(source: str = "", path: str | Path | None = None) -> LoadedSource:
    """Read problems and their candidates, selected by a matrix or not; nothing of theirs is run.

    Args:
        source: The source that reads them: ``folder``, ``kernelbench``, ``aten``, …; ``folder`` for a path alone.
        path: The folder to read; without a source and a path, all that ``./matrix.toml`` names, else ``./problems``,
            else the problems that come with the package.

    Returns:
        Problems, candidates, and what could not be read.

    Raises:
        UsageError: The source is not known, needs a path, or cannot read the folder.

    Examples:
        >>> import kernel_matrix
        >>> loaded = kernel_matrix.load_problems(path="problems")
        >>> "softmax" in {problem.id for problem in loaded.problems}
        True
    """
    if source and source not in SOURCES:
        what = f"--source {source} is not known{suggestion(source, list(SOURCES))}"
        raise UsageError(what, next_step=f"known: {', '.join(SOURCES)}")
    if source or path is not None:
        return load_source(source or "folder", Path(path) if path is not None else None)
    if MATRIX_FILE.is_file():
        return _load_matrix_folders()
    return load_source("folder", PROBLEM_FOLDER if PROBLEM_FOLDER.is_dir() else None)


def find_problems() -> Iterator[tuple[Problem, ProblemSet]]:
    """Yield the problems that an id may name: this folder's, then those that come with the package."""
    for its_set in _problem_sets():
        for problem in load_source(its_set.source, its_set.path).problems:
            yield problem, its_set


def _problem_sets() -> Iterator[ProblemSet]:
    """Yield where problems may be: this folder's, then those that come with the package."""
    if MATRIX_FILE.is_file():
        yield from load_matrix(MATRIX_FILE).problems
    elif PROBLEM_FOLDER.is_dir():
        yield ProblemSet(source="folder", path=PROBLEM_FOLDER.resolve())
    yield from (ProblemSet(source=source) for source in BUNDLED_PROBLEMS)


def write_problem(folder: Path, reference: bytes, dtypes: Iterable[str], *, description: str) -> None:
    """Write a problem whose only workload has the shapes that its reference makes.

    Raises:
        OSError: It cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    # Strings and lists of strings are TOML as JSON writes them.
    text, names = json.dumps(description, ensure_ascii=False), json.dumps([*dtypes])
    lines = ('category = "Other"', f"description = {text}", f"dtypes = {names}", "[workloads.default]")
    replace_file(folder / REFERENCE_FILE, reference)
    replace_file(folder / PROBLEM_FILE, "\n".join(lines) + "\n")


def matching(items: Iterable[T], glob: str) -> tuple[T, ...]:
    """Return the items whose id matches ``glob``.

    Raises:
        NothingSelectedError: None does.
    """
    everything = tuple(items)
    found = tuple(item for item in everything if fnmatchcase(item.id, glob))
    if not found:
        raise NothingSelectedError(
            f"none of {len(everything)} ids matches {glob!r}{_hint(glob, everything)}",
            next_step="without a glob, all are listed",
        )
    return found


def find_one(items: Sequence[T], id_: str, kind: str) -> T:
    """Return the item with the id ``id_``.

    Raises:
        UsageError: There is none; the error names the closest.
    """
    for item in items:
        if item.id == id_:
            return item
    what = f"there is no {kind} {id_!r}{_hint(id_, items)}"
    raise UsageError(what, next_step=f"kernel-matrix {kind}s list names all {len(items)}")


def refuse_unreadable(loaded: LoadedSource) -> None:
    """Check that every file could be read.

    Raises:
        UsageError: Some could not; the error names each.
    """
    if loaded.unreadable:
        count = len(loaded.unreadable)
        lines = [f"{count} {'file' if count == 1 else 'files'} cannot be used", *map(str, loaded.unreadable)]
        raise UsageError("\n  ".join(lines), next_step="kernel-matrix docs problems says what such files hold")


def _load_matrix_folders() -> LoadedSource:
    matrix = load_matrix(MATRIX_FILE)
    beside = [load_source(*place) for place in dict.fromkeys((p.source, p.path) for p in matrix.problems)]
    problems = tuple(problem for loaded in beside for problem in loaded.problems)
    known = {problem.id: problem for problem in problems}
    places = dict.fromkeys((c.source, c.path) for c in matrix.candidates if c.path is not None)
    apart = [load_candidates(*place, known) for place in places]
    return LoadedSource(
        problems=problems,
        candidates=tuple(c for part in (*(b.candidates for b in beside), *(a for a, _ in apart)) for c in part),
        unreadable=tuple(u for part in (*(b.unreadable for b in beside), *(a for _, a in apart)) for u in part),
    )


def _hint(word: str, items: Sequence[T]) -> str:
    close = difflib.get_close_matches(word, [item.id for item in items], n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
