"""``kernel-matrix problems`` and ``candidates``, run as a person runs them, from a folder of their own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def kernel_matrix(*arguments, cwd=ROOT):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200"}
    command = (sys.executable, "-m", "runner", *map(str, arguments))
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False, timeout=60)


@pytest.fixture
def folder(tmp_path):
    """A copy of one problem of ours, in ``problems/`` of a folder without a matrix."""
    for name in ("problem.toml", "reference.py", "candidates/torch_wrong_axis.py", "candidates/torch_wrong_axis.toml"):
        target = tmp_path / "problems/softmax" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((ROOT / "problems/softmax" / name).read_bytes())
    return tmp_path


def test_lists_what_the_matrix_names():
    done = kernel_matrix("problems", "list")
    assert done.returncode == 0
    assert [line.split()[0] for line in done.stdout.splitlines()[1:3]] == ["adamw_step", "argmax"]
    assert not done.stderr


def test_without_a_matrix_the_folder_problems_is_read(folder):
    listed = kernel_matrix("problems", "list", "--json", cwd=folder)
    (problem,) = json.loads(listed.stdout)
    assert (problem["id"], problem["category"]) == ("softmax", "Normalization")
    assert problem["workloads"][0]["values"] == {"M": 16, "N": 200}


def test_a_matrix_decides_what_is_read(folder):
    (folder / "problems").rename(folder / "elsewhere")
    axes = 'name = "small"\ndtypes = ["fp32"]\ngpus = [{name = "cpu", vendor = "cpu"}]\n'
    axes += 'toolchains = [{name = "cpu", torch = "2.13.0", triton = "3.7.1"}]\n'
    apart = folder / "apart/softmax/other.py"
    apart.parent.mkdir(parents=True)
    apart.write_text("import triton\n@triton.jit\ndef k(): pass\n")
    sets = '[[problems]]\nsource = "folder"\npath = "elsewhere"\n'
    sets += '[[candidates]]\nselect = "*"\n[[candidates]]\npath = "apart"\n'
    (folder / "matrix.toml").write_text(axes + sets)
    done = kernel_matrix("candidates", "list", "--json", cwd=folder)
    assert not done.stderr
    found = {c["id"]: c["language"] for c in json.loads(done.stdout)}
    assert found == {"softmax/torch_wrong_axis": "torch", "softmax/other": "triton"}


def test_shows_a_problem_with_its_candidates(folder):
    shown = kernel_matrix("problems", "show", "softmax", cwd=folder).stdout
    for words in ("Softmax over the rows of a matrix.", "M=8192 N=6000", "393.2", "softmax/torch_wrong_axis"):
        assert words in shown
    document = json.loads(kernel_matrix("problems", "show", "softmax", "--json", cwd=folder).stdout)
    assert document["candidates"][0]["expect"] == "incorrect_values"


def test_shows_a_candidate_with_its_source(folder):
    shown = kernel_matrix("candidates", "show", "softmax/torch_wrong_axis", cwd=folder).stdout
    assert "hand-written" in shown
    assert "return torch.softmax(x, dim=0)" in shown


def test_what_a_file_holds_is_not_acted_upon(folder):
    side = folder / "problems/softmax/candidates/torch_wrong_axis.toml"
    side.write_text('description = "[bold]x[/bold] \\u001b[31mred"\n')
    (folder / "problems/softmax/candidates/torch_wrong_axis.py").write_text("x = 1  # \x1b[2J [/]\n")
    shown = kernel_matrix("candidates", "show", "softmax/torch_wrong_axis", cwd=folder)
    assert shown.returncode == 0
    assert "\x1b" not in shown.stdout
    assert "[bold]x[/bold]" in shown.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("problems", "show", "softmx"), 2, "did you mean 'softmax'?"),
        (("candidates", "show", "softmax/x"), 2, "there is no candidate 'softmax/x'"),
        (("problems", "list", "matmul*"), 3, "none of 1 ids matches 'matmul*'"),
        (("problems", "list", "--source", "kernelbunch", "--path", "."), 2, "known: folder, kernelbench"),
        (("problems", "list", "--source", "kernelbench"), 2, "name a path"),
        (("problems", "check", "--path", "nowhere"), 2, "nowhere is no folder"),
        (("problems", "check", "--source", "kernelbench", "--path", "problems"), 2, "is no KernelBench checkout"),
    ],
)
def test_a_wrong_question_is_answered_with_what_is_right(folder, arguments, code, words):
    done = kernel_matrix(*arguments, cwd=folder)
    assert done.returncode == code
    assert words in done.stderr
    assert not done.stdout


def test_check_is_content_with_good_files(folder):
    done = kernel_matrix("problems", "check", cwd=folder)
    assert (done.returncode, done.stdout) == (0, "1 problems and 1 candidates can be used\n")


def test_check_names_every_file_that_cannot_be_used(folder):
    (folder / "problems/softmax/candidates/lost.toml").write_text('expect = "passed"\n')
    (folder / "problems/softmax/candidates/torch_wrong_axis.toml").write_text('\nexpct = "passed"\n')
    done = kernel_matrix("problems", "check", "--json", cwd=folder)
    assert done.returncode == 2
    unreadable = json.loads(done.stdout)["unreadable"]
    assert [(Path(u["path"]).name, u["line"]) for u in unreadable] == [
        ("torch_wrong_axis.toml", 2),
        ("lost.toml", None),
    ]
    assert "2 files cannot be used" in done.stderr
    assert "torch_wrong_axis.toml:2: expct: unknown key" in done.stderr
    assert "did you mean 'expect'?" in done.stderr


def test_a_list_warns_of_what_it_leaves_out(folder):
    (folder / "problems/softmax/candidates/lost.toml").write_text('expect = "passed"\n')
    done = kernel_matrix("candidates", "list", cwd=folder)
    assert done.returncode == 0
    assert "lost.toml: describes lost.py, which is not beside it" in done.stderr
