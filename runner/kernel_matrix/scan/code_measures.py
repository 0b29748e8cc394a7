"""Size and complexity of a candidate's source, which is parsed but never run.

Cyclomatic complexity, Halstead's volume and the formula of the maintainability index are radon's, and so are the
definitions of the lines that the index counts. Only Python is measured: a CUDA source in a string is one value there,
and files in C++ count in the number of lines alone.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Annotated, Final

from radon.complexity import add_inner_blocks
from radon.metrics import h_visit_ast, mi_compute
from radon.visitors import ComplexityVisitor, Function

from kernel_matrix.model.fields import Column, Count, Measured, Range, Small
from kernel_matrix.python_syntax import parse

MAX_BYTES: Final = 1 << 18
"""Bytes of Python that are measured; candidates with CUDA sources have a tenth."""
MAX_NODES: Final = 30_000
"""Nodes of a syntax tree, which take a second at most; candidates have a thousand."""
MAX_DEPTH: Final = 200
"""Depth of a syntax tree; radon takes three calls for a level, and Python allows a thousand. Candidates have 20."""

_LAYOUT: Final = {tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeMeasures:
    """Measures of a candidate's source. All but the lines are of its Python files."""

    lines: Annotated[Count, Column()]
    """Lines of all files of the candidate's source that are not blank; comments count."""
    complexity: Annotated[Small | None, Column()]
    """Largest cyclomatic complexity of a Python function or Triton kernel of the source, by radon; `None` if there is
    none, or the source could not be measured."""
    complexity_mean: Annotated[Measured | None, Column()]
    """Mean cyclomatic complexity of these functions."""
    maintainability: Annotated[float | None, Range(0, 100), Column()]
    """Maintainability index of the Python source by radon, 0 to 100, higher is better; of several files the least."""


@dataclass(frozen=True, slots=True)
class _Lines:
    """Counts of lines of a Python file by radon's definitions."""

    logical: int
    """Statements, with one more for each that has a colon before its end."""
    source: int
    """Lines that are neither blank, nor a comment, nor part of a string that is a statement."""
    comments: int
    """Comments, and lines of strings over several lines that are statements."""


def measure_code(files: Mapping[str, bytes]) -> CodeMeasures:
    """Measure a candidate's source.

    What cannot be measured is None, whatever the reason: a Python file that does not parse, is nested too deeply, or is
    too large, alone or together with the others.

    Args:
        files: content by file name.
    """
    lines = sum(1 for content in files.values() for line in content.splitlines() if line.strip())
    python = [content for name, content in files.items() if name.endswith(".py")]
    complexities: list[int] = []
    indices: list[float] = []
    measurable = 0 < sum(map(len, python)) <= MAX_BYTES
    try:
        for content in python if measurable else ():
            found, index = _measure_python(content.decode("utf-8-sig", errors="replace"))
            complexities += found
            indices.append(index)
    except Exception:  # noqa: BLE001  # hostile sources may break parser or radon in any way, and must not fail a cell
        complexities, indices = [], []
    return CodeMeasures(
        lines=lines,
        complexity=max(complexities, default=None),
        complexity_mean=fmean(complexities) if complexities else None,
        maintainability=min(indices, default=None),
    )


def _measure_python(text: str) -> tuple[list[int], float]:
    """Return the complexities of all functions of a file, and its maintainability index.

    Raises:
        SyntaxError: It is not valid Python.
        ValueError: It has null bytes, or exceeds :data:`MAX_NODES` or :data:`MAX_DEPTH`.
        RecursionError: It is nested too deeply for Python.
        MemoryError: As before, for other kinds of nesting.
    """
    tree = parse(text)
    _check_size(tree)
    visitor = ComplexityVisitor.from_ast(tree)
    # Blocks repeat the methods of inner classes; places tell them apart.
    blocks = add_inner_blocks(visitor.blocks)
    functions = {(b.lineno, b.col_offset): b.complexity for b in blocks if isinstance(b, Function)}
    lines = _count_lines(text)
    index = mi_compute(
        h_visit_ast(tree).total.volume,
        visitor.total_complexity,
        lines.logical,
        lines.comments / lines.source * 100 if lines.source else 0,
    )
    return list(functions.values()), index


def _check_size(tree: ast.Module) -> None:
    level: list[ast.AST] = [tree]
    nodes = 0
    for _ in range(MAX_DEPTH):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        nodes += len(level)
        if not level:
            return
        if nodes > MAX_NODES:
            break
    raise ValueError(f"more than {MAX_NODES} nodes, or nested deeper than {MAX_DEPTH}")


def _count_lines(text: str) -> _Lines:
    """Count lines as :func:`radon.raw.analyze` does.

    That function reads a statement again for each of its lines, which takes a time quadratic in the length of a CUDA
    source in a string. This one reads each token once.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    filled = [bool(line.strip()) for line in text.split("\n")]
    logical = source = comments = 0
    for statement in _statements(text):
        comments += sum(token.type == tokenize.COMMENT for token in statement)
        first, last = statement[0].start[0], statement[-1].end[0]
        alone = statement[0].type if len(statement) == 1 else None
        if alone == tokenize.STRING:
            comments += sum(filled[first - 1 : last]) if last > first else 0
        elif alone != tokenize.COMMENT:
            source += sum(filled[first - 1 : last])
        logical += _count_logical(statement)
    return _Lines(logical, source, comments)


def _statements(text: str) -> Iterator[list[tokenize.TokenInfo]]:
    """Yield the tokens of each line, with those that it continues on, without tokens of layout."""
    statement: list[tokenize.TokenInfo] = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _LAYOUT:
            statement.append(token)
        # A line break without a meaning (NL) ends a line with a comment alone; any other is within brackets.
        elif statement and (token.type != tokenize.NL or statement[0].type == tokenize.COMMENT):
            yield statement
            statement = []


def _count_logical(statement: list[tokenize.TokenInfo]) -> int:
    """Count logical lines: one per part between semicolons, two if it has a colon that does not end it."""
    parts: list[list[bool]] = [[]]
    for token in statement:
        if token.type == tokenize.OP and token.string == ";":
            parts.append([])
        elif token.type != tokenize.COMMENT:
            parts[-1].append(token.type == tokenize.OP and token.string == ":")
    parts[-1] += [False] if parts[-1] else []  # radon's last part ends with the end of the file
    return sum(1 + (any(part) and part[-2:-1] != [True]) for part in parts if part)
