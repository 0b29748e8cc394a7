"""Drivers and GPUs against the toolchains of a matrix."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kernel_matrix.errors import PythonEnvironmentError
from kernel_matrix.hosts.doctor.toolchains import check
from kernel_matrix.matrix import Matrix
from kernel_matrix.platforms.check_result import CheckVerdict
from tests.hosts.doctor.clinic import MATRIX
from tests.hosts.doctor.nouns import gpu, host, small_matrix
from tests.hosts.test_survey import ENVIRONMENT

IMAGE = """name = "cu130"
cuda = "13.0"
torch = "2.11.0"
triton = "3.6.0"
"""
WITH_ENVIRONMENT = MATRIX.replace(IMAGE, 'name = "here"\nenvironment = "auto"\n')


@pytest.fixture
def matrix(tmp_path: Path) -> Matrix:
    return small_matrix(tmp_path, MATRIX.replace('model = "NVIDIA H200*"', 'model = "NVIDIA*"'))


def told(matrix: Matrix | None, *gpus: Any) -> list[tuple[str, CheckVerdict, str]]:
    return [(f.subject, f.verdict, f.found) for f in check(host(*gpus, matrix=matrix))]


def test_a_new_driver_runs_it(matrix: Matrix) -> None:
    assert told(matrix, gpu(0), gpu(1)) == [
        ("toolchain cu130", CheckVerdict.OK, "CUDA 13.0, torch 2.11.0: GPU 0, 1 can run it")
    ]


def test_an_old_driver_does_not(matrix: Matrix) -> None:
    old = {"driver": "550.54.15", "cuda_driver": "12.4"}
    ((subject, verdict, found),) = told(matrix, gpu(0, **old), gpu(1, **old))
    assert (subject, verdict) == ("toolchain cu130", CheckVerdict.WARN)
    assert found == "GPU 0, 1: driver 550.54.15 runs CUDA up to 12.4; CUDA 13.0 needs driver 580.65.06 or newer"


def test_a_gpu_that_its_torch_has_no_code_for_is_named(matrix: Matrix) -> None:
    ((_, verdict, found),) = told(matrix, gpu(0), gpu(1, name="NVIDIA TITAN V", compute_capability="7.0"))
    assert verdict is CheckVerdict.WARN
    assert found.startswith("GPU 1: torch 2.11.0 for CUDA 13.0 has machine code for 7.5")


def test_what_the_table_does_not_know_is_said(tmp_path: Path) -> None:
    matrix = small_matrix(tmp_path, MATRIX.replace('cuda = "13.0"', 'cuda = "99.1"'))
    ((_, verdict, found),) = told(matrix, gpu())
    assert verdict is CheckVerdict.WARN
    assert "CUDA 99.1 is not in the compatibility table" in found


def test_environment_is_described(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernel_matrix.hosts.survey.read_environment", lambda _where: ENVIRONMENT)
    checked, described = told(small_matrix(tmp_path, WITH_ENVIRONMENT), gpu())
    assert checked == ("toolchain here", CheckVerdict.OK, "CUDA 13.0, torch 2.11.0: GPU 0 can run it")
    words = "/venv: CPython 3.12.3, torch 2.11.0, Triton 3.6.0, for cuda"
    assert described == ("environment here", CheckVerdict.OK, words)


def test_environment_that_cannot_be_used_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_where: str) -> None:
        raise PythonEnvironmentError("it has no PyTorch", next_step="install it")

    monkeypatch.setattr("kernel_matrix.hosts.survey.read_environment", refuse)
    assert told(small_matrix(tmp_path, WITH_ENVIRONMENT), gpu()) == [
        ("toolchain here", CheckVerdict.WARN, "it has no PyTorch")
    ]


def test_gpus_that_the_matrix_does_not_want_do_not_matter(matrix: Matrix) -> None:
    assert told(matrix, gpu(name="Quadro P400", compute_capability="6.1")) == []
    assert told(matrix) == []
    assert told(None, gpu()) == []
