"""Problems of a ParallelKernelBench checkout: ``reference/<number>_<name>.py``, with a function of one rank.

The arguments of all problems are made by one file, ``utils/input_output_tensors.py``.
"""

from __future__ import annotations

import ast
import hashlib
import re
from functools import partial
from pathlib import Path

from kernel_matrix.errors import UsageError
from kernel_matrix.sources import LoadedSource, Problem, Workload
from kernel_matrix.sources.document import UnreadableFileError, read_bytes, read_each
from kernel_matrix.sources.reference_module import digest_of, parse_module

TEMPLATE = Path(__file__).with_name("adapter.py")
"""Template of the adapters of problems and candidates."""
FILE = "solution.py"
"""Name of the file with the function beside its adapter."""
RANKS = 2
"""The files work for any number of ranks; as many as most machines with several GPUs have."""

_FUNCTION = "solution"
_INPUTS = "input_output_tensors.py"
_PROBLEM = re.compile(r"(\d+)_(.+)\Z")
_WORKLOADS = (
    Workload(name="default", values={"M": 1024, "N": 1024}),
    Workload(name="smoke", values={"M": 128, "N": 128}),
)


def load(root: Path, *, name: str) -> LoadedSource:
    """Read every reference of a checkout; see :class:`kernel_matrix.sources.Source`."""
    folder, inputs = root / "reference", root / "utils" / _INPUTS
    if not folder.is_dir() or not inputs.is_file():
        raise UsageError(
            f"problems: {root} is not a ParallelKernelBench checkout: it has no reference/ and utils/{_INPUTS}",
            next_step="name the checkout",
        )
    files = sorted(folder.glob("*.py"), key=_sort_key)
    problems, unreadable = read_each(files, partial(_read_problem, inputs=inputs, source=name))
    return LoadedSource(problems=problems, unreadable=unreadable)


def adapter_of(number: int) -> str:
    """Return the source of a module in KernelBench's form for problem ``number``."""
    return TEMPLATE.read_text(encoding="utf-8").replace("NUMBER = 0", f"NUMBER = {number}")


def read_solution(path: Path) -> bytes:
    """Read a file that defines the function.

    Raises:
        UnreadableFileError: it does not, or it cannot be read.
    """
    source = read_bytes(path)
    tree = parse_module(path, source)
    if not any(isinstance(node, ast.FunctionDef) and node.name == _FUNCTION for node in tree.body):
        raise UnreadableFileError(path, f"defines no function {_FUNCTION}")
    return source


def number_of(stem: str) -> int | None:
    """Return the number of a problem, by the name of its file; ``None`` if it has none."""
    match = _PROBLEM.match(stem)
    return int(match[1]) if match else None


def _sort_key(path: Path) -> tuple[int, str]:
    return number_of(path.stem) or 0, path.name


def _read_problem(path: Path, inputs: Path, source: str) -> Problem:
    number = number_of(path.stem)
    if number is None:
        raise UnreadableFileError(path, "is not named <number>_<name>.py")
    adapter, text = adapter_of(number), read_solution(path)
    facts = {
        "adapter": hashlib.sha256(adapter.encode()).hexdigest(),
        "inputs": hashlib.sha256(read_bytes(inputs)).hexdigest(),
        "workloads": [workload.digest_facts for workload in _WORKLOADS],
        "ranks": RANKS,
    }
    return Problem(
        id=path.stem,
        source=source,
        path=path,
        adapter=adapter,
        extra_files={FILE: path, _INPUTS: inputs},
        category="Communication",
        workloads=_WORKLOADS,
        ranks=RANKS,
        digest=digest_of(text, facts),
        description=path.stem.partition("_")[2].replace("_", " "),
    )
