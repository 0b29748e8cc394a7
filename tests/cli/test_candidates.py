"""``kernel-matrix candidates check``, run as a person runs it."""

import json
from pathlib import Path

import pytest

from tests.cli.test_problems import ROOT, folder, kernel_matrix

__all__ = ["folder"]  # a fixture

CUDA = "torch::Tensor run(torch::Tensor x) { return x; }\n"


@pytest.fixture
def candidates(folder):
    """The folder of candidates of the one problem that is there, with one file of CUDA more."""
    place = folder / "problems/softmax/candidates"
    (place / "cuda_row.cu").write_text(CUDA)
    return place


def check(candidates, *arguments):
    return kernel_matrix("candidates", "check", *arguments, cwd=candidates.parents[2])


def test_good_files_are_counted_by_language(candidates):
    done = check(candidates)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "2 candidates can be used: 1 cuda, 1 torch\n"


def test_every_file_that_cannot_be_used_is_named(candidates):
    (candidates / "cuda_row.py").write_text("x = 1\n")
    (candidates / "lost.toml").write_text('expect = "passed"\n')
    (candidates / "torch_wrong_axis.toml").write_text('\nexpct = "passed"\n')
    done = check(candidates, "--json")
    assert done.returncode == 2
    document = json.loads(done.stdout)
    assert (document["candidates"], document["languages"]) == (0, {})
    assert {(Path(item["path"]).name, item["line"]) for item in document["unreadable"]} == {
        ("cuda_row.py", None),
        ("cuda_row.cu", None),
        ("torch_wrong_axis.toml", 2),
        ("lost.toml", None),
    }
    for words in ("4 files cannot be used", "cuda_row.cu: cuda_row.py beside it has the same name", "did you mean"):
        assert words in done.stderr


def test_a_problem_that_cannot_be_read_is_named_too(candidates):
    (candidates.parent / "reference.py").write_text("x = 1\n")
    done = check(candidates)
    assert (done.returncode, done.stdout) == (2, "0 candidates can be used\n")
    assert "defines no Model" in done.stderr


def test_the_candidates_that_come_with_the_program_can_be_used():
    assert kernel_matrix("candidates", "check", "--path", ROOT / "problems").returncode == 0


def test_a_cuda_candidate_is_shown_with_its_source(candidates):
    shown = kernel_matrix("candidates", "show", "softmax/cuda_row", cwd=candidates.parents[2])
    assert "torch::Tensor run(torch::Tensor x)" in shown.stdout
