"""The matrix's line."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_matrix.hosts.doctor.matrix_selection import check
from kernel_matrix.matrix import Matrix
from kernel_matrix.platforms.check_result import CheckVerdict
from tests.hosts.doctor.clinic import MATRIX
from tests.hosts.doctor.nouns import gpu, host, small_matrix


@pytest.fixture
def matrix(tmp_path: Path) -> Matrix:
    return small_matrix(tmp_path)


def test_it_says_what_of_the_matrix_is_here_and_what_is_not(matrix: Matrix) -> None:
    (finding,) = check(host(gpu(0), gpu(1), gpu(2, name="NVIDIA L4"), matrix=matrix))
    assert finding.verdict is CheckVerdict.OK
    assert finding.found.endswith("matrix.toml: cpu is the CPU; h200 is GPU 0, 1; not named by it: GPU 2")
    (finding,) = check(host(matrix=matrix))
    assert finding.found.endswith("cpu is the CPU; not here: h200")


def test_a_matrix_for_other_machines_only_is_a_fault(tmp_path: Path) -> None:
    text = MATRIX.replace('name = "cpu"\nvendor = "cpu"', 'name = "l4"\nmodel = "L4"')
    (finding,) = check(host(matrix=small_matrix(tmp_path, text)))
    assert finding.verdict is CheckVerdict.FAIL
    assert "not here: l4, h200" in finding.found


def test_without_a_matrix_it_says_what_is_not_looked_at() -> None:
    (finding,) = check(host(matrix_reason="there is no matrix.toml in this folder"))
    assert finding.found == ("there is no matrix.toml in this folder: toolchains, images and policies are not checked")
    assert "--matrix" in finding.advice
