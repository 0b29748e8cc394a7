"""A checkout in ParallelKernelBench's form: problems of several ranks that the judge can run, and their solutions."""

import textwrap

import pytest

from kernel_matrix.errors import UsageError
from kernel_matrix.model.enums import Dtype, InputMode, Language
from kernel_matrix.sources import load_candidates, load_source

INPUTS = """
import torch

def create_input_tensor(rank, world_size, problem_id, base_shape, dtype, trial=0, device=None):
    rows, columns = base_shape
    if problem_id == 1:
        return (torch.full(base_shape, float(rank + 1), dtype=dtype, device=device),)
    torch.manual_seed(rank + trial)
    return (torch.randn(rows, columns, dtype=dtype, device=device), 2.0)
"""
SUM = """
import torch.distributed as dist

def solution(x):
    total = x.clone()
    dist.all_reduce(total)
    return total
"""
SCALED = """
import torch.distributed as dist

def solution(x, factor):
    total = x * factor
    dist.all_reduce(total)
    return total
"""
TRITON = """
import triton

@triton.jit
def kernel(x):
    pass

def solution(x):
    return x
"""


@pytest.fixture
def checkout(tmp_path):
    files = {
        "utils/input_output_tensors.py": INPUTS,
        "reference/10_scaled.py": SCALED,
        "reference/1_sum.py": SUM,
        "reference/2_nothing.py": "def other(x):\n    return x\n",
        "reference/unnumbered.py": SUM,
        "solutions_mine/1_sum_fast.py": TRITON,
        "solutions_mine/3_unknown_fast.py": SUM,
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(textwrap.dedent(text))
    return tmp_path


def test_load_reads_problems_in_order_of_numbers(checkout):
    loaded = load_source("parallelkernelbench", checkout)
    assert [(p.id, p.ranks, p.description) for p in loaded.problems] == [
        ("1_sum", 2, "sum"),
        ("10_scaled", 2, "scaled"),
    ]
    assert len({p.digest for p in loaded.problems}) == 2
    assert [str(item).partition(": ")[2] for item in loaded.unreadable] == [
        "is not named <number>_<name>.py",
        "defines no function solution",
    ]


def test_load_folder_of_another_form_is_refused(tmp_path):
    with pytest.raises(UsageError, match="is not a ParallelKernelBench checkout"):
        load_source("parallelkernelbench", tmp_path)


def test_load_candidates_finds_their_problems(checkout):
    problems = {problem.id: problem for problem in load_source("parallelkernelbench", checkout).problems}
    (found,), (refused,) = load_candidates("parallelkernelbench", checkout, problems)
    assert (found.id, found.language, found.origin.method) == (
        "1_sum/solutions_mine-fast",
        Language.TRITON,
        "solutions_mine",
    )
    assert "3_unknown" in refused.reason


def test_load_candidates_of_another_form_is_refused(tmp_path):
    with pytest.raises(UsageError, match="has no <number>_<name>_<backend>"):
        load_candidates("parallelkernelbench", tmp_path, {})


@pytest.mark.torch
@pytest.mark.parametrize("name", ["1_sum", "10_scaled"])
def test_adapter_makes_a_problem_for_the_judge(name, checkout, tmp_path):
    torch = pytest.importorskip("torch")
    from kernel_matrix.inside.judge.reference import ReferenceModel  # noqa: PLC0415  # needs torch

    problem = next(p for p in load_source("parallelkernelbench", checkout).problems if p.id == name)
    staged = tmp_path / "staged"
    staged.mkdir()
    for file, content in {"problem.py": problem.code.module(), **problem.code.contents()}.items():
        (staged / file).write_bytes(content)
    values = dict(problem.workloads[1].values)
    reference = ReferenceModel(staged / "problem.py", values, "cpu", Dtype.FP32, "0" * 32, ranks=problem.ranks)
    first, second = (reference.draw(InputMode.STANDARD, index) for index in range(2))
    each = len(first) // 2
    assert first[0].shape == (128, 128)
    assert not torch.equal(first[0], second[0]), "also where the file fills it with one number"
    factor = 2.0 if name == "10_scaled" else 1.0
    for output in reference.expect(first).outputs:
        torch.testing.assert_close(output.float(), factor * (first[0] + first[each]))
