"""Solutions of ParallelKernelBench: ``solutions_…/<number>_<name>_<backend>.py``, with a function of one rank."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from kernel_matrix.errors import UsageError
from kernel_matrix.sources import Candidate, Origin, Problem, UnreadableItem
from kernel_matrix.sources.document import NOT_IN_IDS, UnreadableFileError, read_each
from kernel_matrix.sources.parallelkernelbench.reader import FILE, adapter_of, number_of, read_solution
from kernel_matrix.sources.reference_module import detect_language, digest_of


def load_candidates(
    path: Path, problems: Mapping[str, Problem]
) -> tuple[tuple[Candidate, ...], tuple[UnreadableItem, ...]]:
    """Read one folder of solutions, or a checkout with several; see :func:`kernel_matrix.sources.load_candidates`.

    Solutions belong to the problem whose name theirs begins with. Their ids end in ``<folder>-<backend>``.
    """
    files = [*path.glob("*.py"), *path.glob("solutions_*/*.py")] if path.is_dir() else []
    named = sorted(file for file in files if number_of(file.stem) is not None)
    if not named:
        raise UsageError(
            f"candidates: {path} has no <number>_<name>_<backend>.py of ParallelKernelBench",
            next_step="name a folder solutions_…, or the checkout",
        )
    return read_each(named, partial(_read, problems=problems))


def _read(path: Path, problems: Mapping[str, Problem]) -> Candidate:
    problem_id, _, backend = path.stem.rpartition("_")
    if problem_id not in problems:
        raise UnreadableFileError(path, f"is for {problem_id!r}, which is not among the problems read")
    source, run = read_solution(path), path.resolve().parent.name
    adapter, language = adapter_of(number_of(problem_id) or 0), detect_language(source)
    return Candidate(
        id=f"{problem_id}/{NOT_IN_IDS.sub('_', run)}-{backend}",
        problem_id=problem_id,
        path=path,
        adapter=adapter,
        extra_files={FILE: path},
        language=language,
        defines="solution",
        origin=Origin(method=run),
        digest=digest_of(source, {"language": language.value, "adapter": adapter}),
    )
