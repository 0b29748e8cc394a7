"""What the verbs ``problems`` and ``candidates`` read: everything the named folders hold, selected or not."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import typer

if TYPE_CHECKING:
    from rich.text import Text

    from kernel_matrix.sources import Candidate, LoadedSource, Problem

MATRIX_FILE = Path("matrix.toml")
PROBLEM_FOLDER = Path("problems")

SOURCE = typer.Option("", "--source", metavar="NAME", help="What reads them: folder, kernelbench, aten, …")
PATH = typer.Option(
    None, "--path", help="Read what is there, and not what ./matrix.toml names (or ./problems, without one)."
)
JSON = typer.Option(False, "--json", help="One JSON document.")
GLOB = typer.Argument("*", help="Only ids that match, e.g. 'softmax*'.")


class Listed(Protocol):
    """A problem or a candidate."""

    @property
    def id(self) -> str:
        """Its id."""
        ...


T = TypeVar("T", bound=Listed)


def load_collection(source: str, path: Path | None) -> LoadedSource:
    """Read ``path`` as ``source``; without a path, all that ``./matrix.toml`` names, or ``./problems``.

    :raises kernel_matrix.errors.UsageError: for an unknown source, a source without a path, or a folder it cannot read.
    """
    from kernel_matrix.errors import UsageError  # noqa: PLC0415  # --help starts without it
    from kernel_matrix.sources import load_source, source_names  # noqa: PLC0415  # as above

    if source and source not in source_names():
        what = f"--source {source} is not known; known: {', '.join(source_names())}"
        raise UsageError(what, next_step="name one of these")
    if source or path is not None:
        return load_source(source or "folder", path)
    return _load_matrix_folders() if MATRIX_FILE.is_file() else load_source("folder", PROBLEM_FOLDER)


def matching(items: Iterable[T], glob: str) -> tuple[T, ...]:
    """The items whose id matches ``glob``.

    :raises kernel_matrix.errors.NothingSelectedError: when none does.
    """
    from kernel_matrix.errors import NothingSelectedError  # noqa: PLC0415  # --help starts without it

    everything = tuple(items)
    found = tuple(item for item in everything if fnmatchcase(item.id, glob))
    if not found:
        raise NothingSelectedError(
            f"none of {len(everything)} ids matches {glob!r}{_hint(glob, everything)}",
            next_step="without a glob, all are listed",
        )
    return found


def the_one(items: Sequence[T], id_: str, kind: str) -> T:
    """The item called ``id_``.

    :raises kernel_matrix.errors.UsageError: when there is none; names the closest.
    """
    from kernel_matrix.errors import UsageError  # noqa: PLC0415  # --help starts without it

    for item in items:
        if item.id == id_:
            return item
    what = f"there is no {kind} {id_!r}{_hint(id_, items)}"
    raise UsageError(what, next_step=f"kernel-matrix {kind}s list names all {len(items)}")


def warn_of_unreadable(loaded: LoadedSource) -> None:
    """Say on stderr what could not be read."""
    from kernel_matrix.cli.output import console  # noqa: PLC0415  # rich is loaded only when something is printed

    for item in loaded.unreadable:
        console(stderr=True).print(plain(f"not read: {item}"))


def refuse_unreadable(loaded: LoadedSource) -> None:
    """:raises kernel_matrix.errors.UsageError: naming every file that cannot be used, if there is any."""
    from kernel_matrix.errors import UsageError  # noqa: PLC0415  # --help starts without it

    if loaded.unreadable:
        count = len(loaded.unreadable)
        lines = [f"{count} {'file' if count == 1 else 'files'} cannot be used", *map(str, loaded.unreadable)]
        raise UsageError("\n  ".join(lines), next_step="docs/problems.md says what such files hold")


def plain(text: str) -> Text:
    """``text`` as it is: without markup, and without what a terminal would act on, since files of others hold it."""
    from rich.text import Text  # noqa: PLC0415  # rich is loaded only when something is printed

    return Text("".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text))


def problem_document(problem: Problem) -> dict[str, Any]:
    """A problem as JSON."""
    return {
        "id": problem.id,
        "source": problem.source,
        "path": str(problem.path),
        "category": problem.category,
        "level": problem.level,
        "tags": list(problem.tags),
        "dtypes": [dtype.value for dtype in problem.dtypes],
        "workloads": [
            {
                "name": workload.name,
                "values": dict(workload.values),
                "flops": workload.flops,
                "bytes": {dtype.value: count for dtype, count in workload.bytes.items()},
            }
            for workload in problem.workloads
        ],
        "tolerance": dict(problem.tolerance),
        "outliers": problem.outliers,
        "mutates_inputs": problem.mutates_inputs,
        "random": problem.random,
        "digest": problem.digest,
        "description": problem.description,
    }


def candidate_document(candidate: Candidate) -> dict[str, Any]:
    """A candidate as JSON; of its origin, what is known."""
    from dataclasses import asdict  # noqa: PLC0415  # --help starts without it

    origin = {key: value for key, value in asdict(candidate.origin).items() if value is not None}
    return {
        "id": candidate.id,
        "problem": candidate.problem_id,
        "path": str(candidate.path),
        "language": candidate.language.value,
        "entry": candidate.entry,
        "dtypes": [dtype.value for dtype in candidate.dtypes],
        "origin": origin,
        "expect": candidate.expect.value if candidate.expect else None,
        "digest": candidate.digest,
        "description": candidate.description,
    }


def unreadable_documents(loaded: LoadedSource) -> list[dict[str, Any]]:
    """What could not be read, as JSON."""
    return [{"path": str(item.path), "line": item.line, "reason": item.reason} for item in loaded.unreadable]


def _load_matrix_folders() -> LoadedSource:
    from kernel_matrix.matrix.load import load_matrix  # noqa: PLC0415  # --help starts without it
    from kernel_matrix.sources import LoadedSource, load_candidates, load_source  # noqa: PLC0415  # as above

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


def _hint(word: str, items: Sequence[Listed]) -> str:
    close = difflib.get_close_matches(word, [item.id for item in items], n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
