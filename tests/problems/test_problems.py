"""The project's own problems and candidates, as far as they can be known without running them."""

from pathlib import Path

import pytest

from kernel_matrix.model.enums import Dtype, Language, Status
from kernel_matrix.sources import load_source
from kernel_matrix.sources.reference_module import read_reference

ROOT = Path(__file__).resolve().parents[2]
LOADED = load_source("folder", ROOT / "problems")
PROBLEMS = {problem.id: problem for problem in LOADED.problems}


def test_everything_can_be_read():
    assert not LOADED.unreadable


def test_there_is_a_broad_choice():
    good = [c for c in LOADED.candidates if c.expect is Status.PASSED]
    triton = {c.problem_id for c in good if c.language is Language.TRITON}
    cuda = {c.problem_id for c in good if c.language is Language.CUDA}
    assert len(PROBLEMS) >= 13
    assert len({p.category for p in PROBLEMS.values()}) >= 9
    assert len(LOADED.candidates) >= 24
    assert len(triton) >= 8
    assert len(cuda) >= 3


def test_every_dtype_is_offered_by_some_problem():
    assert {dtype for problem in PROBLEMS.values() for dtype in problem.dtypes} == set(Dtype)


def test_every_example_says_how_it_ends_and_why():
    assert [c.id for c in LOADED.candidates if c.expect is None or not c.description] == []
    assert {c.expect for c in LOADED.candidates} >= {
        Status.PASSED,
        Status.COMPILE_ERROR,
        Status.LOAD_ERROR,
        Status.RUNTIME_ERROR,
        Status.CRASHED,
        Status.TIMEOUT,
        Status.OUT_OF_MEMORY,
        Status.INCORRECT_STRUCTURE,
        Status.INCORRECT_SHAPE,
        Status.INCORRECT_DTYPE,
        Status.NONFINITE,
        Status.INCORRECT_VALUES,
        Status.INPUT_MODIFIED,
        Status.CONTRACT_BROKEN,
    }


@pytest.mark.parametrize("problem", LOADED.problems, ids=lambda p: p.id)
def test_workloads_are_a_small_and_a_large_one(problem):
    workloads = {w.name: w for w in problem.workloads}
    assert workloads.keys() >= {"smoke", "default"}
    assert workloads["smoke"].bytes[Dtype.FP32] <= 400_000
    assert 50e6 <= workloads["default"].bytes[Dtype.FP32] <= 1e9
    assert (workloads["default"].flops > workloads["smoke"].flops) or workloads["default"].flops == 0


@pytest.mark.parametrize("problem", LOADED.problems, ids=lambda p: p.id)
def test_the_module_itself_has_the_default_shape(problem):
    constants = read_reference(problem.path).constants
    default = next(w.values for w in problem.workloads if w.name == "default")
    assert {name: constants[name].value for name in default} == default
