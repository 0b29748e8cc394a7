"""Problems of a KernelBench checkout: its ``level<N>/<number>_<name>.py`` files, unchanged."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from kernel_matrix.errors import UsageError
from kernel_matrix.model.enums import Dtype
from kernel_matrix.sources import LoadedSource, Problem, UnreadableItem, Workload
from kernel_matrix.sources.document import UnreadableFileError, read_each
from kernel_matrix.sources.reference_module import digest_of, read_reference

OTHER = "Other"
"""Category of whole networks, which fit none of the fifteen operator categories."""

LEVEL_FOLDER = re.compile(r"level(\d+)\Z")
_PROBLEM = re.compile(r"(\d+)_(.+)\Z")

_CATEGORIES = (
    ("Loss", r"loss"),
    ("Pooling", r"pooling"),
    ("Convolution", r"conv"),
    ("MatrixMultiply", r"matmul|matrix_(vector_)?multiplication"),
    ("Math", r"cum(sum|prod)|scalar_multiplication"),
    ("Reduce", r"over_a_dimension|reduction"),
    ("Fusion", r"attention"),
    ("Normalization", r"norm"),
    ("Activation", r"relu|sigmoid|tanh|softmax|swish|gelu|selu|softplus|softsign|elu"),
)
"""Category and pattern of the names of its level 1 files, tried in order."""


def load(root: Path, *, name: str) -> LoadedSource:
    """Read every level of a KernelBench checkout, or of its folder ``KernelBench``."""
    problems: list[Problem] = []
    unreadable: list[UnreadableItem] = []
    for level, folder in _levels(root):
        files = sorted(folder.glob("*.py"), key=_number)
        good, bad = read_each(files, partial(_read_problem, level=level, source=name))
        problems += good
        unreadable += bad
    return LoadedSource(problems=tuple(problems), unreadable=tuple(unreadable))


def _levels(root: Path) -> Iterator[tuple[int, Path]]:
    bench = root / "KernelBench" if (root / "KernelBench").is_dir() else root
    folders = sorted(bench.iterdir()) if bench.is_dir() else []
    found = [(int(match[1]), f) for f in folders if (match := LEVEL_FOLDER.match(f.name)) and f.is_dir()]
    if not found:
        raise UsageError(
            f"problems: {root} is not a KernelBench checkout: it has no folder level1",
            next_step="name the checkout, or its folder KernelBench",
        )
    yield from sorted(found)


def _number(path: Path) -> tuple[int, str]:
    match = _PROBLEM.match(path.stem)
    return (int(match[1]) if match else 0, path.name)


def _read_problem(path: Path, level: int, source: str) -> Problem:
    match = _PROBLEM.match(path.stem)
    if match is None:
        raise UnreadableFileError(path, "is not named <number>_<name>.py")
    reference = read_reference(path)
    return Problem(
        id=f"level{level}/{path.stem}",
        source=source,
        path=path,
        category=_category(level, match[2]),
        level=level,
        dtypes=(Dtype.FP32, Dtype.FP16, Dtype.BF16),
        workloads=(Workload(name="default"),),
        digest=digest_of(reference.source, {"workloads": [{"name": "default", "values": {}}]}),
        description=" ".join(match[2].replace("_", " ").split()),
    )


def _category(level: int, title: str) -> str:
    """Guess the category of KernelBench-X from the file name; level 2 has the fused operators."""
    if level == 2:
        return "Fusion"
    words = title.lower()
    fits = (category for category, pattern in _CATEGORIES if re.search(pattern, words))
    return next(fits, OTHER) if level == 1 else OTHER
