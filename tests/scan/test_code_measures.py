"""Measures of a source: radon's, in a time that the source's length bounds, and absent where it cannot be measured."""

from __future__ import annotations

from pathlib import Path

import pytest
from radon.complexity import add_inner_blocks, cc_visit
from radon.metrics import mi_visit
from radon.raw import analyze
from radon.visitors import Function

from kernel_matrix.python_syntax import parse
from kernel_matrix.scan.code_measures import (
    MAX_BYTES,
    MAX_DEPTH,
    MAX_NODES,
    CodeMeasures,
    _count_lines,
    _Lines,
    measure_code,
)

CANDIDATES = sorted((Path(__file__).parents[2] / "problems").glob("*/candidates/*.py"))

BRANCHES = '''\
"""Two lines
of a docstring."""

import torch

# a comment
KERNEL = """
__global__ void scale(float *x) {
  if (x) { x[0] = 1; }

}
"""


class ModelNew(torch.nn.Module):
    def forward(self, x):
        if x.numel() == 0 or x.dim() > 3:  # nothing to do
            return x
        return [row for row in x if row is not None]; pass

    class Inner:
        def method(self):
            def closure():
                return 1 if self else 2
            return closure
'''

ODD_LINES = (
    "",
    "\n\n",
    "x = 1",
    "x = 1; y = 2; z = a[1:2]\n",
    "a[1:]; b\n",
    "if x: pass\nelse:\n    y = {1: 2}\n",
    "f(1,\n  2,\n\n  # within\n  3)\n",
    "x = 1 + \\\n  2\n",
    "'one'\n",
    "'one' 'two'\n",
    "'''one\n\ntwo'''\n",
    "'''one'''  # with a comment\n",
    "def f():\n    '''one\n    two'''\n",
    "x = f'{y:>3} ;:'\n",
    "f':'\n",
    "x: int = lambda: 0\n",
    "\tx = 1\n".strip(),
    "x = 1\r\ny = 2\r\n",
    "x = 1\ry = 2\r",
    "# no end of the line",
    "with a as b, c as d: e; f\n",
)


def measured(text: str) -> CodeMeasures:
    return measure_code({"candidate.py": text.encode()})


@pytest.mark.parametrize("text", [*ODD_LINES, BRANCHES])
def test_lines_are_counted_as_radon_counts_them(text: str) -> None:
    raw = analyze(text)
    assert _count_lines(text) == _Lines(raw.lloc, raw.sloc, raw.comments + raw.multi)


@pytest.mark.parametrize("path", CANDIDATES, ids=lambda path: f"{path.parts[-3]}/{path.stem}")
def test_a_shipped_candidate_has_the_measures_of_radon(path: Path) -> None:
    text = path.read_text()
    found = measured(text)
    assert found.lines == sum(bool(line.strip()) for line in text.splitlines())
    try:
        parse(text)
    except SyntaxError:
        assert (found.complexity, found.maintainability) == (None, None)
        return
    blocks = [block.complexity for block in cc_visit(text) if isinstance(block, Function)]
    assert found.complexity == max(blocks)
    assert found.maintainability == pytest.approx(mi_visit(text, multi=True))


def test_all_functions_count_once_and_strings_are_one_value() -> None:
    found = measured(BRANCHES)
    blocks = {block.lineno: block.complexity for block in add_inner_blocks(cc_visit(BRANCHES)) if block.letter != "C"}
    # forward: `if`, `or` and a comprehension with its own `if`; the method; its closure with `if … else`.
    assert sorted(blocks.values()) == [1, 2, 5]
    assert (found.complexity, found.complexity_mean) == (5, pytest.approx(8 / 3))
    assert found.lines == 19
    assert found.maintainability == measured(BRANCHES.replace("if (x)", "if (x && x > 1)")).maintainability


def test_all_files_have_lines_and_python_alone_the_rest() -> None:
    cpp = b"// comment\n\nint f();\n"
    assert measure_code({"kernel.cu": cpp}) == CodeMeasures(
        lines=2, complexity=None, complexity_mean=None, maintainability=None
    )
    both = measure_code({"a.py": BRANCHES.encode(), "b.py": b"x = 1 + 1\n", "kernel.cu": cpp})
    alone = measured(BRANCHES)
    assert (both.lines, both.complexity) == (alone.lines + 3, alone.complexity)
    assert both.maintainability == alone.maintainability


def test_a_source_without_functions_has_no_complexity() -> None:
    found = measured("x = a + b\n")
    assert (found.complexity, found.complexity_mean) == (None, None)
    assert found.maintainability is not None


HOSTILE = {
    "syntax": b"def f(:\n",
    "null bytes": b"x = 1\0\n",
    "brackets": b"x = " + b"(" * 5000 + b")" * 5000,
    "signs": b"x = " + b"-" * 100_000 + b"1",
    "sums": b"x = " + b"1 + " * (MAX_DEPTH + 1) + b"1",
    "attributes": b"x = a" + b".b" * 20_000,
    "elif": b"if a: pass\n" + b"elif a: pass\n" * MAX_DEPTH,
    "indents": b"".join(b" " * depth + b"if a:\n" for depth in range(150)) + b" " * 150 + b"pass\n",
    "statements": b"x\n" * MAX_NODES,
    "bytes": b"#" * (MAX_BYTES + 1),
    "number": b"x = " + b"9" * 5000,
    "dedent": b"  x = 1\n y = 2\n",
    "unfinished": b"x = '''\n" * 3,
    "line breaks": b"\x0c\x1c\x85 (\n",
}


@pytest.mark.parametrize("source", HOSTILE.values(), ids=HOSTILE)
def test_what_cannot_be_measured_is_absent(source: bytes) -> None:
    found = measure_code({"good.py": BRANCHES.encode(), "candidate.py": source})
    assert found.lines > 0
    assert (found.complexity, found.complexity_mean, found.maintainability) == (None, None, None)


def test_a_long_string_is_read_once() -> None:
    # radon's own count reads it again for each of its lines: 8 billion of them.
    found = measured('KERNEL = """\n' + "a\n" * (MAX_BYTES // 2 - 20) + '"""\ny = KERNEL + KERNEL\n')
    assert found.lines > 100_000
    assert found.maintainability is not None


def test_deepest_tree_that_is_measured_is_no_recursion_error() -> None:
    depth = MAX_DEPTH - 5
    assert measured("x = " + "1 + " * depth + "1\n").maintainability is not None


@pytest.mark.parametrize("source", [b"", b"\n \n", b"\xef\xbb\xbfx = 1 + y\n", b"# \xff\xfe\nx = 1 + y\n"])
def test_odd_bytes_are_no_reason_to_give_up(source: bytes) -> None:
    found = measure_code({"candidate.py": source})
    assert found.lines == len([line for line in source.splitlines() if line.strip()])
    assert (found.maintainability is None) is (source == b"")


def test_no_file_has_no_measures() -> None:
    assert measure_code({}) == CodeMeasures(lines=0, complexity=None, complexity_mean=None, maintainability=None)
