"""Write pairs of candidates as a data set: failing → passing, slower → faster."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import polars as pl

from kernel_matrix.analysis.believed_records import find_believed_records
from kernel_matrix.analysis.candidate_pairs import ERROR_CORRECTION, PairSet
from kernel_matrix.analysis.candidate_pairs import make_pairs as _make_pairs
from kernel_matrix.analysis.source_identity import SourceText
from kernel_matrix.api.judge_candidates import kept_candidates
from kernel_matrix.api.results import Results, as_results
from kernel_matrix.errors import NothingSelectedError, UsageError
from kernel_matrix.model.enums import Grade
from kernel_matrix.report.pairs_card import write_card
from kernel_matrix.report.source_texts import matrices_of, read_measured_sources, read_texts
from kernel_matrix.results.record_files import find
from kernel_matrix.results.store import replace_document
from kernel_matrix.untrusted_json import UntrustedJsonError, read_object

__all__ = ["WrittenPairs", "make_pairs"]

_EMPTY: Final[tuple[Any, ...]] = (None, "", [], {})


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenPairs:
    """Pairs that were written, and what was left out."""

    table: pl.DataFrame
    """One row per pair, as in the files."""
    files: tuple[Path, ...]
    records_left_out: Mapping[str, int]
    """Why records have no part in pairs → their number."""
    pairs_left_out: Mapping[str, int]
    """Why two candidates are no pair → their number."""
    notes: tuple[str, ...]
    """Matrices that cannot be read, and why."""


def make_pairs(
    results: Results | str | Path = "results",
    out: str | Path = "pairs",
    *,
    matrix: str | Path | None = None,
    nearest: int = 1,
    grade: str = Grade.B.value,
) -> WrittenPairs:
    """Write ``pairs.parquet``, ``pairs.jsonl`` and a data card, ``README.md``, and replace those that are there.

    Args:
        results: Opened results, or a folder.
        out: The folder the files are written to.
        matrix: Take the sources from this matrix; by default from those that the runs name.
        nearest: Pairs per failing or slower candidate whose parent is not known, with the most similar sources.
        grade: The weakest grade of a time that is compared: ``A``, ``B`` or ``C``.

    Raises:
        UsageError: There is no such matrix or grade, or ``nearest`` is below 1.
        NothingSelectedError: No two results are a pair; the message says what was left out.
        StoreError: A file cannot be written; what was there before stays.
    """
    least_grade = _check(matrix, nearest, grade)
    opened = as_results(results)
    records = find_believed_records(opened.tables, least_grade=least_grade)
    wanted = records.table.select("problem", "problem_sha256", "candidate", "candidate_sha256")
    matrices = matrices_of(opened.record_folders) if matrix is None else [Path(matrix)]
    notes: list[str] = []
    sources = {digest: SourceText.of_files(files) for digest, files in _sources(opened, matrices, wanted, notes)}
    pairs = _make_pairs(opened.tables, records, sources, most_each=nearest)
    if pairs.table.is_empty():
        raise NothingSelectedError(f"there are no pairs: {_explain(pairs)}", next_step=_next_step(notes, matrix))
    table = _with_evidence(pairs.table, _record_files(opened))
    return WrittenPairs(
        table=table,
        files=_write(table, pairs, Path(out), opened.folders, least_grade),
        records_left_out=pairs.records_left_out,
        pairs_left_out=pairs.pairs_left_out,
        notes=tuple(notes),
    )


def _check(matrix: str | Path | None, nearest: int, grade: str) -> Grade:
    if matrix is not None and not Path(matrix).is_file():
        raise UsageError(f"there is no matrix {matrix}", next_step="Name a file: --matrix FILE.")
    if nearest < 1:
        raise UsageError(f"--nearest {nearest} is below 1", next_step="1 gives one pair per candidate.")
    try:
        return Grade(grade)
    except ValueError:
        raise UsageError(f"there is no grade {grade!r}", next_step="Choose A, B or C.") from None


def _sources(
    opened: Results, matrices: Collection[Path], wanted: pl.DataFrame, notes: list[str]
) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Yield digests and files of the sources of candidates and references."""
    digests = {*wanted["candidate_sha256"].drop_nulls(), *wanted["problem_sha256"].drop_nulls()}
    found = set()
    for digest, files in read_measured_sources(matrices, digests, notes):
        found.add(digest)
        yield digest, files
    missing = wanted.filter(~pl.col("candidate_sha256").is_in(list(found))).select("problem", "candidate").unique()
    for folder in sorted({file.parents[1] for file in _record_files(opened)}):
        for candidate in kept_candidates(folder, missing.iter_rows()):
            if candidate.digest in digests and (files := read_texts(candidate)):
                yield candidate.digest, files


def _record_files(opened: Results) -> list[Path]:
    return [Path(file) for file in find(opened.record_folders)[0]] if opened.record_folders else []


def _explain(pairs: PairSet) -> str:
    counts = {**pairs.records_left_out, **pairs.pairs_left_out}
    said = [f"{number:,} × {reason}" for reason, number in counts.items() if number]
    return "; ".join(said) or "no candidate has a partner that fails or is slower"


def _next_step(notes: Collection[str], matrix: str | Path | None) -> str:
    sources = "" if matrix else " Name the matrix that has the sources: --matrix FILE."
    return " ".join((f"Measure more candidates, or allow a weaker --grade.{sources}", *notes))


def _with_evidence(table: pl.DataFrame, files: Collection[Path]) -> pl.DataFrame:
    """Replace the evidence that tables have by all that the records have, where these are here."""
    by_name: dict[str, list[Path]] = {}
    for file in files:
        by_name.setdefault(file.stem, []).append(file)
    texts = [
        _evidence_of(by_name.get(name, []), text) if kind == ERROR_CORRECTION else text
        for kind, name, text in table.select("kind", "record_before", "evidence_before").iter_rows()
    ]
    return table.with_columns(evidence_before=pl.Series(texts, dtype=pl.String))


def _evidence_of(files: Collection[Path], otherwise: str) -> str:
    """Return the evidence of the one record with that name; two hosts may have one each."""
    if len(files) != 1:
        return otherwise
    try:
        outcome = read_object(*files)["outcome"]
    except UntrustedJsonError:
        return otherwise
    if outcome["evidence"].get("held_out"):  # of which a data set for training must tell nothing
        return otherwise
    known = {name: value for name, value in outcome["evidence"].items() if value not in _EMPTY}
    return json.dumps({**known, "stage": outcome["stage"]}, ensure_ascii=False)


def _write(table: pl.DataFrame, pairs: PairSet, out: Path, folders: Collection[Path], grade: Grade) -> tuple[Path, ...]:
    parquet, lines = BytesIO(), BytesIO()
    table.write_parquet(parquet)
    table.write_ndjson(lines)
    card = write_card(
        table,
        records_left_out=pairs.records_left_out,
        pairs_left_out=pairs.pairs_left_out,
        folders=[str(folder) for folder in folders],
        grade=grade.value,
    )
    contents = {"pairs.parquet": parquet.getvalue(), "pairs.jsonl": lines.getvalue(), "README.md": card.encode()}
    for name, data in contents.items():
        replace_document(out / name, data)
    return tuple(out / name for name in contents)
