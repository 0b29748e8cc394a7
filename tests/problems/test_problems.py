"""The project's own problems and candidates, as far as they can be known without running them."""

import shutil
from pathlib import Path

import pytest

from kernel_matrix.model.enums import Dtype, Language, Status
from kernel_matrix.sources import load_source
from kernel_matrix.sources.reference_module import read_reference

ROOT = Path(__file__).resolve().parents[2]
LOADED = load_source("folder", ROOT / "problems")
PROBLEMS = {problem.id: problem for problem in LOADED.problems}

OF_RANKS = {
    "all_gather": ((0, 27_000, 18_000), (0, 45_000, 36_000)),
    "all_gather_gemm": ((215_040, 13_696, 5_376), (430_080, 22_912, 10_752)),
    "all_reduce": ((5_000, 20_000, 10_000), (5_000, 20_000, 10_000)),
    "all_reduce_rms_norm": ((30_000, 24_500, 12_000), (30_000, 24_500, 12_000)),
    "all_to_all": ((0, 40_320, 20_160), (0, 40_320, 20_160)),
    "distributed_softmax": ((16_000, 12_800, 64), (16_000, 12_800, 64)),
    "gemm_all_reduce": ((107_520, 8_768, 3_840), (107_520, 8_768, 3_840)),
    "gemm_reduce_scatter": ((107_520, 6_848, 3_840), (107_520, 5_888, 3_840)),
    "moe_combine": ((7_200, 11_520, 7_200), (7_200, 11_520, 7_200)),
    "moe_dispatch": ((0, 14_976, 7_200), (0, 14_976, 7_200)),
    "reduce_scatter": ((2_160, 12_960, 8_640), (3_240, 10_800, 8_640)),
    "sequence_parallel_attention": ((1_440_000, 28_800, 28_800), (2_880_000, 28_800, 57_600)),
    "vocab_parallel_cross_entropy": ((149_760, 74_880, None), (149_760, 74_880, None)),
}
"""Problem → FLOPs, bytes and size of the collective of ``smoke`` in fp16, for 2 and for 4 ranks."""


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


def test_every_problem_of_ranks_has_its_sizes_here():
    assert {problem.id for problem in LOADED.problems if problem.ranks > 1} == OF_RANKS.keys()


@pytest.mark.parametrize("name", OF_RANKS)
def test_sizes_of_ranks_hold_for_any_number_of_them(name, tmp_path):
    found = []
    for ranks in (2, 4):
        folder = tmp_path / str(ranks) / name
        folder.mkdir(parents=True)
        text = (ROOT / "problems" / name / "problem.toml").read_text()
        (folder / "problem.toml").write_text(text.replace("\nranks = 2\n", f"\nranks = {ranks}\n"))
        shutil.copy(ROOT / "problems" / name / "reference.py", folder)
        (problem,) = load_source("folder", folder.parent).problems
        smoke = next(one for one in problem.workloads if one.name == "smoke")
        found.append((smoke.flops, smoke.bytes[Dtype.FP16], smoke.collective_bytes.get(Dtype.FP16)))
        assert (problem.ranks, problem.collective is None) == (ranks, found[-1][2] is None)
    assert tuple(found) == OF_RANKS[name]
