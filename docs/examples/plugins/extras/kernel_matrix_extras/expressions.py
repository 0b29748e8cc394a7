"""The source ``expressions``: each line of a file is a problem, ``name = expression of x``; a candidate is one too.

The judge and the worker get a module in KernelBench's form, which this source writes around the expression.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kernel_matrix.errors import UsageError
from kernel_matrix.model.enums import Language
from kernel_matrix.sources import Candidate, LoadedSource, Problem, UnreadableItem
from kernel_matrix.sources.reference_module import digest_of

_MODULE = """\
import torch


class {name}(torch.nn.Module):
    def forward(self, x):
        return {expression}


def get_inputs():
    return [torch.rand(256, 256)]


def get_init_inputs():
    return []
"""


def load(root: Path, *, name: str) -> LoadedSource:
    """Read the file ``root``.

    Raises:
        UsageError: It cannot be read.
    """
    expressions, unreadable = _read(root)
    problems = [_problem(root, name, key, expression) for key, expression in expressions.items()]
    return LoadedSource(problems=tuple(problems), unreadable=unreadable)


def load_candidates(
    path: Path, problems: Mapping[str, Problem]
) -> tuple[tuple[Candidate, ...], tuple[UnreadableItem, ...]]:
    """Read candidates from the file ``path``: one expression for each problem of that name."""
    expressions, unreadable = _read(path)
    known = {key: expression for key, expression in expressions.items() if key in problems}
    return tuple(_candidate(path, key, expression) for key, expression in known.items()), unreadable


def _read(path: Path) -> tuple[dict[str, str], tuple[UnreadableItem, ...]]:
    expressions, unreadable = {}, []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}", next_step="name a text file") from None
    for number, line in enumerate(lines, 1):
        key, equals, expression = line.partition("=")
        if equals:
            expressions[key.strip()] = expression.strip()
        else:
            unreadable.append(UnreadableItem(path=path, reason="is not name = expression", line=number))
    return expressions, tuple(unreadable)


def _problem(path: Path, source: str, key: str, expression: str) -> Problem:
    module = _MODULE.format(name="Model", expression=expression)
    return Problem(
        id=key, source=source, path=path, adapter=module, category="Math", digest=digest_of(module.encode(), {})
    )


def _candidate(path: Path, key: str, expression: str) -> Candidate:
    module = _MODULE.format(name="ModelNew", expression=expression)
    return Candidate(
        id=f"{key}/{path.stem}",
        problem_id=key,
        path=path,
        adapter=module,
        language=Language.TORCH,
        digest=digest_of(module.encode(), {}),
    )
