"""Sources of candidates and references for the page: found through a matrix, shown only if a record has their digest.

Records hold digests of sources, not their text. What a matrix of this machine selects now may differ from what ran, and
the files of a run may name any matrix; text whose digest no record has is never on the page.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import polars as pl

from kernel_matrix.errors import KernelMatrixError
from kernel_matrix.matrix import Matrix
from kernel_matrix.matrix.load import load_matrix
from kernel_matrix.results.record_files import find, read_runs
from kernel_matrix.sources import Candidate, LoadedSource, Problem, load_candidates, load_source

MOST_CHARACTERS: Final = 60_000
"""Of one file; the rest is cut off."""
MOST_IN_ALL: Final = 2_000_000
"""Characters of all sources on one page; further ones are left out."""
_MOST_MATRICES: Final = 8
SOURCES: Final = {"digest": pl.String(), "file": pl.String(), "text": pl.String()}


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTexts:
    """Texts by digest, and why some are missing."""

    table: pl.DataFrame
    """A row per file, with the columns :data:`SOURCES`; a source may have several files."""
    note: str = ""


def matrices_of(folders: Sequence[Path]) -> list[Path]:
    """List the matrices that the runs in result ``folders`` name, where they are files here."""
    runs, _ = read_runs(find(folders)[1]) if folders else ({}, [])
    named = dict.fromkeys(Path(run["matrix_path"]) for run in runs.values())
    return [path for path in named if path.is_file()][:_MOST_MATRICES]


def find_source_texts(matrices: Iterable[Path], digests: Collection[str]) -> SourceTexts:
    """Read the sources that ``matrices`` name and whose digest is in ``digests``, as far as a page has room."""
    rows: list[tuple[str, str, str]] = []
    left, there = MOST_IN_ALL, set()
    missing: list[str] = []
    for digest, files in read_measured_sources(matrices, digests, missing):
        texts = {name: text[:MOST_CHARACTERS] for name, text in files.items()}
        size = sum(map(len, texts.values()))
        if size <= left:
            there.add(digest)
            left -= size
            rows += [(digest, name, text) for name, text in texts.items()]
    lacking = len(set(digests)) - len(there)
    if rows and lacking:
        missing.append(f"{lacking:,} sources are not here as they were measured, or are too many for the page.")
    return SourceTexts(table=pl.DataFrame(rows, schema=SOURCES, orient="row"), note=" ".join(missing))


def read_measured_sources(
    matrices: Iterable[Path], digests: Collection[str], faults: list[str]
) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Yield each of ``digests`` that a source in ``matrices`` has, with the names and texts of its files.

    Args:
        matrices: Matrix files.
        digests: Digests of candidates and problems, as records have them.
        faults: Takes the reasons why a matrix cannot be read.
    """
    wanted = set(digests)
    for path in matrices:
        try:
            items = list(_items(load_matrix(path)))
        except KernelMatrixError as error:
            faults.append(str(error).splitlines()[0])
            continue
        for item in items:
            texts = read_texts(item) if item.digest in wanted else {}
            if texts:
                wanted.discard(item.digest)
                yield item.digest, texts


def _items(matrix: Matrix) -> Iterator[Candidate | Problem]:
    """Yield all problems and candidates in the places that ``matrix`` names; places that cannot be read have none."""
    problems: dict[str, Problem] = {}
    for place in dict.fromkeys((chosen.source, chosen.path) for chosen in matrix.problems):
        loaded = _loaded(*place)
        problems |= {problem.id: problem for problem in loaded.problems}
        yield from loaded.candidates
        yield from loaded.problems
    for chosen in dict.fromkeys((chosen.source, chosen.path) for chosen in matrix.candidates):
        if chosen[1] is not None:
            yield from _apart(chosen[0], chosen[1], problems)


def _loaded(source: str, path: Path | None) -> LoadedSource:
    try:
        return load_source(source, path)
    except KernelMatrixError:
        return LoadedSource()


def _apart(source: str, path: Path, problems: Mapping[str, Problem]) -> Iterable[Candidate]:
    try:
        return load_candidates(source, path, problems)[0]
    except KernelMatrixError:
        return ()


def read_texts(item: Candidate | Problem) -> dict[str, str]:
    """Read the author's files of an item; empty if they cannot be read."""
    try:
        files = item.code.written()
    except OSError:
        return {}
    return {name: text.decode("utf-8", "replace") for name, text in files.items()}
