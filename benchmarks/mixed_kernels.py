"""Twenty right and twenty wrong kernels of ten problems of the suite: what ``harnesses.py`` gives to each harness.

The wrong ones are wrong in ways that people and language models produce. Each says so in one line: in its docstring
below ``harness_kernels``, or, if it is one of the suite's own candidates, in the TOML file beside it. Not a benchmark
of its own.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gpu_runs import ROOT

from kernel_matrix.sources import Problem, load_source
from kernel_matrix.sources.reference_module import detect_language

SUITE = ROOT / "problems"
OWN = Path(__file__).resolve().parent / "harness_kernels"
WORKLOADS = ("smoke", "default")
"""Shape sets that a kernel must be right for; ``default`` is also the one of the constants in the problem's file."""


@dataclass(frozen=True)
class MixedKernel:
    """A kernel of one of the ten problems, right or wrong."""

    problem: str
    name: str
    is_right: bool

    @property
    def id(self) -> str:
        """Id as a candidate."""
        return f"{self.problem}/{self.name}"

    @property
    def is_of_suite(self) -> bool:
        """True for a candidate that lies beside its problem."""
        return not (OWN / f"{self.id}.py").exists()

    @property
    def path(self) -> Path:
        """File with its ``ModelNew``."""
        return SUITE / self.problem / "candidates" / f"{self.name}.py" if self.is_of_suite else OWN / f"{self.id}.py"

    @property
    def reference(self) -> Path:
        """File with the ``Model`` that it must agree with."""
        return SUITE / self.problem / "reference.py"

    @property
    def source(self) -> str:
        """Text of its file."""
        return self.path.read_text(encoding="utf-8")

    @property
    def language(self) -> str:
        """``triton`` or ``torch``."""
        return detect_language(self.source.encode()).value

    @property
    def docstring(self) -> str:
        """What it is, in one line; empty for a candidate of the suite."""
        return ast.get_docstring(ast.parse(self.source)) or ""


_RIGHT = {
    "relu": ("triton_flat", "torch_clamp"),
    "vector_add": ("triton_blocked", "triton_persistent"),
    "softmax": ("triton_row", "triton_online"),
    "gelu_tanh": ("triton_flat", "torch_formula"),
    "cumsum": ("triton_scan", "torch_split"),
    "argmax": ("triton_row", "torch_first_largest"),
    "matmul": ("triton_tiled", "torch_widen"),
    "attention": ("triton_flash", "torch_steps"),
    "swiglu": ("triton_blocked", "torch_sigmoid"),
    "max_pool2d": ("triton_window", "torch_slices"),
}
_WRONG = {
    "relu": ("triton_extra_block", "torch_in_place"),
    "vector_add": ("triton_whole_blocks", "triton_off_by_one"),
    "softmax": ("triton_no_maximum", "triton_zero_padding"),
    "gelu_tanh": ("triton_half", "torch_side_stream"),
    "cumsum": ("triton_race", "triton_exclusive"),
    "argmax": ("triton_last_of_equals", "torch_int32"),
    "matmul": ("triton_whole_tiles", "torch_downcast"),
    "attention": ("triton_unused", "torch_fixed_scale"),
    "swiglu": ("torch_replaced_timer", "torch_memo_by_address"),
    "max_pool2d": ("torch_stops_working", "torch_zero_padding"),
}


def mixed_kernels() -> list[MixedKernel]:
    """Return all of them, so that the first ones are right and wrong, and of several problems."""
    return [
        MixedKernel(problem, found[problem][place], is_right)
        for place in range(2)
        for problem in _RIGHT
        for found, is_right in ((_RIGHT, True), (_WRONG, False))
    ]


def mixed_problems() -> Mapping[str, Problem]:
    """Return the ten problems by id."""
    return {problem.id: problem for problem in load_source("folder", SUITE).problems if problem.id in _RIGHT}
