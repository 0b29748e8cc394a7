"""Facts about the bundled problems that can be checked without running them."""

import pytest

from kernel_matrix.errors import UsageError
from kernel_matrix.model.enums import Dtype
from kernel_matrix.sources import load_source
from kernel_matrix.sources.reference_module import read_reference
from tests.sources.examples import PROBLEM, REFERENCE, write

LOADED = {name: load_source(name, None) for name in ("vllm", "cublas")}
PROBLEMS = {problem.id: problem for loaded in LOADED.values() for problem in loaded.problems}
SMALL = {"vllm/moe_align_block_size"}
"""Problems whose time goes into sequential steps, not into moving data."""


@pytest.mark.parametrize("name", LOADED)
def test_ids_begin_with_the_name_of_the_source(name):
    loaded = LOADED[name]
    assert not loaded.unreadable
    assert [p.id for p in loaded.problems] == [f"{name}/{p.path.parent.name}" for p in loaded.problems]
    assert {p.source for p in loaded.problems} == {name}
    assert len(loaded.problems) >= 14


def test_load_any_folder_reads_problems_and_candidates(tmp_path):
    write(tmp_path / "half/problem.toml", PROBLEM)
    write(tmp_path / "half/reference.py", REFERENCE)
    write(tmp_path / "half/candidates/mine.py", "class ModelNew:\n    pass\n")
    loaded = load_source("vllm", tmp_path)
    assert [p.id for p in loaded.problems] == ["vllm/half"]
    assert [(c.id, c.problem_id) for c in loaded.candidates] == [("vllm/half/mine", "vllm/half")]


def test_a_folder_without_problems_is_refused(tmp_path):
    with pytest.raises(UsageError, match="has no problem"):
        load_source("cublas", tmp_path)


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
def test_workloads_grow_and_the_module_has_the_default_one(problem):
    small, default, large = (next(w for w in problem.workloads if w.name == n) for n in ("smoke", "default", "large"))
    assert small.bytes[Dtype.FP32] <= 120_000
    assert default.bytes[Dtype.FP32] <= 1e9
    assert default.bytes[Dtype.FP32] >= (4e6 if problem.id in SMALL else 50e6)
    assert large.bytes[Dtype.FP32] >= 2 * default.bytes[Dtype.FP32]
    assert default.flops == 0 or small.flops < default.flops < large.flops
    constants = read_reference(problem.path).constants
    assert {name: constants[name].value for name in default.values} == default.values


def test_every_routine_of_cublas_has_its_call():
    assert [p.id for p in LOADED["cublas"].problems if p.library is None] == []
