"""``kernel-matrix init``: the projects that it writes are complete, and nothing is replaced."""

from __future__ import annotations

import json

import pytest

import kernel_matrix
from kernel_matrix.api.start_project import EXAMPLES
from kernel_matrix.errors import UsageError
from kernel_matrix.images.lock import load_lock
from tests.cli.terminal import piped


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_example_is_a_matrix_without_complaints(tmp_path, example):
    written = kernel_matrix.start_project(tmp_path, example)
    assert tmp_path / "matrix.toml" in written
    plan = kernel_matrix.make_plan(tmp_path / "matrix.toml", sandbox="process")
    assert plan.plan.selection.unreadable == ()
    first = {path.stem for path in written if "candidates" in path.parts}
    planned = {cell.candidate.id.rpartition("/")[2] for cell in plan.cells()}
    assert first
    assert first <= planned


@pytest.mark.parametrize("example", [name for name, example in EXAMPLES.items() if example.needs_images])
def test_pinned_toolchains_of_an_example_are_locked(tmp_path, example):
    kernel_matrix.start_project(tmp_path, example)
    matrix = kernel_matrix.load_matrix(tmp_path / "matrix.toml")
    pinned = {toolchain.name for toolchain in matrix.toolchains if not toolchain.environment}
    assert pinned
    assert pinned <= load_lock(matrix.lock_path).keys()


def test_no_file_is_replaced_and_then_none_is_written(tmp_path):
    (tmp_path / "matrix.toml").write_text("mine")
    with pytest.raises(UsageError, match=r"matrix\.toml exists already, and no file is replaced"):
        kernel_matrix.start_project(tmp_path, "kernel")
    assert [path.name for path in tmp_path.iterdir()] == ["matrix.toml"]
    assert (tmp_path / "matrix.toml").read_text() == "mine"


def test_unknown_example_is_refused_with_the_closest_one(tmp_path):
    ran = piped(tmp_path, "init", "--example", "nigthly")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.splitlines() == [
        "error: there is no example 'nigthly'; did you mean 'nightly'?",
        "  → examples: cpu, gpu, kernel, nightly, fleet",
    ]


def test_folder_that_cannot_be_made_is_one_error(tmp_path):
    (tmp_path / "taken").write_text("")
    ran = piped(tmp_path, "init", "taken/mine")
    assert ran.returncode == 2
    assert ran.stderr.splitlines() == [
        "error: taken/mine cannot be written: Not a directory",
        "  → name another folder",
    ]


@pytest.mark.torch
def test_three_commands_judge_a_first_kernel(tmp_path):
    began = piped(tmp_path, "init", "mine")
    assert began.stdout.splitlines()[-3:] == ["  cd mine", "  kernel-matrix run", "  kernel-matrix results"]
    ran = piped(tmp_path / "mine", "run", "--sandbox", "process")
    assert ran.returncode == 0, ran.stderr
    rows = json.loads(piped(tmp_path / "mine", "results", "--json").stdout)
    assert [(row["candidate"], row["status"]) for row in rows] == [("squares/mine", "passed")]
