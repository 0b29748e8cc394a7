"""Kernels of a KernelBench run: ``runs/<run>/level_<level>_problem_<number>_sample_<sample>_kernel.py``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from kernel_matrix.errors import UsageError
from kernel_matrix.sources import Candidate, Origin, Problem, UnreadableItem
from kernel_matrix.sources.document import NOT_IN_IDS, UnreadableFileError, read_bytes, read_each
from kernel_matrix.sources.reference_module import detect_language, digest_of

_KERNEL = re.compile(r"level_(\d+)_problem_(\d+)_sample_(\d+)_kernel\.py\Z")
_PROBLEM = re.compile(r"level(\d+)/(\d+)_")


def load_candidates(
    path: Path, problems: Mapping[str, Problem]
) -> tuple[tuple[Candidate, ...], tuple[UnreadableItem, ...]]:
    """Read one run, or a folder of runs; see :func:`kernel_matrix.sources.load_candidates`.

    Kernels belong to the problem of their level and number. Their ids end in ``<run>-<sample>``.
    """
    files = sorted([*path.glob("*.py"), *path.glob("*/*.py")]) if path.is_dir() else []
    if not any(map(_match_name, files)):
        raise UsageError(
            f"candidates: {path} is not a KernelBench run: it has no level_<l>_problem_<p>_sample_<s>_kernel.py",
            next_step="name a folder runs/<run>, or runs",
        )
    known = {(int(match[1]), int(match[2])): id_ for id_ in problems if (match := _PROBLEM.match(id_))}
    return read_each(sorted(files, key=_sort_key), partial(_read, known=known))


def _match_name(path: Path) -> re.Match[str] | None:
    return _KERNEL.match(path.name)


def _sort_key(path: Path) -> tuple[str, tuple[int, ...], str]:
    match = _match_name(path)
    return (path.parent.name, tuple(map(int, match.groups())) if match else (), path.name)


def _read(path: Path, known: Mapping[tuple[int, int], str]) -> Candidate:
    match = _match_name(path)
    if match is None:
        raise UnreadableFileError(path, "is not named level_<level>_problem_<number>_sample_<sample>_kernel.py")
    level, number, sample = map(int, match.groups())
    problem_id = known.get((level, number))
    if problem_id is None:
        raise UnreadableFileError(
            path, f"is for problem {number} of level {level}, which is not among the problems read"
        )
    source, run = read_bytes(path), path.resolve().parent.name
    language = detect_language(source)
    return Candidate(
        id=f"{problem_id}/{NOT_IN_IDS.sub('_', run)}-{sample}",
        problem_id=problem_id,
        path=path,
        language=language,
        origin=Origin(method=run, sample=sample),
        digest=digest_of(source, {"language": language.value, "entry": "ModelNew"}),
    )
