"""``kernel-matrix problems`` and ``candidates``, run as a person runs them, from a folder of their own."""

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from kernel_matrix.api.wording import describe_label
from tests.cli.terminal import piped
from tests.pipes import Program, read_line

ROOT = Path(__file__).resolve().parents[2]


def started(*arguments, cwd=ROOT, **environment):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200", **environment}
    command = (sys.executable, "-m", "kernel_matrix", *map(str, arguments))
    return Program(command, cwd=cwd, env=environment)


def kernel_matrix(*arguments, cwd=ROOT, **environment):
    return piped(cwd, *map(str, arguments), COLUMNS="200", **environment)


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
    # A long description goes on in a line of its own, far to the right.
    listed = [line.split()[0] for line in done.stdout.splitlines()[1:] if not line.startswith("  ")]
    assert listed == sorted(path.parent.name for path in ROOT.glob("problems/*/problem.toml"))
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
        (("problems", "check", "--path", "nowhere"), 2, "nowhere is not a folder"),
        (("problems", "check", "--source", "kernelbench", "--path", "problems"), 2, "is not a KernelBench checkout"),
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
    assert "lost.toml: describes lost.py, but neither lost.py, lost.cu nor lost.hip" in done.stderr


# ---- try


CONSTANT = "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return x * 0 + 3\n"
CONSTANT += "def get_inputs():\n    return [torch.randn(8, 24)]\n"
ENDLESS = CONSTANT.replace("return x * 0 + 3", "while True: pass")
NEEDY = f"import no_such_package\n{CONSTANT}"


def add_problem(folder, name, source, toml="[workloads.default]\n"):
    place = folder / "problems" / name
    place.mkdir(parents=True)
    (place / "reference.py").write_text(source)
    (place / "problem.toml").write_text(f'category = "Other"\ndtypes = ["fp32"]\ndescription = "x"\n{toml}')


@pytest.mark.torch
def test_problems_that_are_good_are_counted(folder):
    done = kernel_matrix("problems", "try", cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    first, *table, last = done.stdout.splitlines()
    assert first.startswith("1 problems to try; sandbox process ")
    assert [line.split() for line in table] == [["status", "problems"], ["passed", "1"]]
    assert last.startswith("1 problems tried in ")


@pytest.mark.torch
def test_unusable_problems_are_listed_with_place_and_counted(folder):
    add_problem(folder, "constant", CONSTANT)
    add_problem(folder, "needy", NEEDY)
    add_problem(folder, "half", CONSTANT, "workload = 3\n")
    done = kernel_matrix("problems", "try", cwd=folder)
    assert done.returncode == 2
    assert "constant: invalid_problem: a constant would pass: " in done.stdout
    words = "needy: unsupported: problems/needy/reference.py:1: the reference needs the package 'no_such_package'"
    assert words in done.stdout
    assert "2 problems and 1 file cannot be used\n  problems/half/problem.toml:4: " in done.stderr


@pytest.mark.torch
def test_label_of_a_tried_problem_is_explained(folder):
    reference = folder / "problems" / "softmax" / "reference.py"
    reference.write_text(reference.read_text() + "\ntorch.backends.cuda.matmul.allow_tf32 = True\n")
    done = kernel_matrix("problems", "try", cwd=folder)
    assert done.returncode == 0
    shown = " ".join(done.stdout.split())
    assert f"labelled changes_torch_state: softmax {describe_label('changes_torch_state')}" in shown


@pytest.mark.torch
def test_a_script_gets_one_document(folder):
    add_problem(folder, "constant", CONSTANT)
    done = kernel_matrix("problems", "try", "--json", cwd=folder)
    assert done.returncode == 2
    document = json.loads(done.stdout)
    assert document["counts"] == {"invalid_problem": 1, "passed": 1}
    bad, good = document["problems"]
    assert (bad["id"], bad["status"], bad["fault"]) == ("constant", "invalid_problem", "problem")
    assert (bad["workload"], bad["dtype"], bad["path"], bad["line"]) == ("default", "fp32", None, None)
    assert (good["id"], good["workload"], good["dtype"], good["labels"]) == ("softmax", "smoke", "fp32", [])
    assert (document["engine"], document["image"], document["unreadable"]) == ("process", None, [])


@pytest.mark.torch
def test_only_what_matches_and_has_what_is_asked_for_is_tried(folder):
    add_problem(folder, "constant", CONSTANT)
    add_problem(folder, "soft", CONSTANT)
    asked = ("--workload", "smoke", "--dtype", "fp16", "--json")
    done = kernel_matrix("problems", "try", "soft*", *asked, cwd=folder)
    assert done.returncode == 0
    document = json.loads(done.stdout)
    assert [(one["id"], one["dtype"]) for one in document["problems"]] == [("softmax", "fp16")]
    assert document["left_out"] == {"soft": "has no workload 'smoke'"}


@pytest.mark.torch
def test_ctrl_c_ends_everything_and_says_what_is_left(folder):
    temporary = folder / "tmp"
    temporary.mkdir()
    add_problem(folder, "constant", CONSTANT)
    add_problem(folder, "endless", ENDLESS)
    arguments = ("problems", "try", "*n*", "--limit", 600, "--jobs", 1)
    with started(*arguments, cwd=folder, TMPDIR=str(temporary)) as process:
        assert read_line(process).startswith("2 problems to try")
        assert read_line(process).startswith("constant: invalid_problem: ")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert out == "stopped: 1 of 2 problems were not tried\n"
    assert err == "stopped by SIGINT\n"
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("soft",), 3, "did you mean 'softmax'?"),
        (("--dtype", "fp17"), 2, "--dtype fp17: allowed are fp32, fp16, "),
        (("--dtype", "bool"), 3, "nothing to try: 1 does not offer bool"),
        (("--workload", "huge"), 3, "nothing to try: 1 has no workload 'huge'"),
        (("--sandbox", "podman"), 2, "unknown sandbox 'podman'"),
        (("--sandbox", "docker"), 2, "there is no matrix.toml here"),
        (("--toolchain", "cpu"), 2, "there is no matrix.toml here"),
        (("--limit", "0"), 2, "--limit"),
    ],
)
def test_what_cannot_be_tried_is_said_before_anything_is_started(folder, arguments, code, words):
    done = kernel_matrix("problems", "try", *arguments, cwd=folder)
    assert done.returncode == code
    assert words in done.stderr
    assert not done.stdout


@pytest.mark.docker
def test_problems_try_with_daemon_runs_in_the_cpu_image(cpu_lock):
    done = kernel_matrix("problems", "try", "relu", "--sandbox", "docker", "--lock", cpu_lock, "--json")
    document = json.loads(done.stdout)
    assert (done.returncode, document["engine"], document["counts"]) == (0, "docker", {"passed": 1})
    assert document["image"].startswith("sha256:")


@pytest.mark.docker
def test_a_toolchain_that_the_matrix_does_not_have_is_refused(cpu_lock):
    done = kernel_matrix("problems", "try", "relu", "--sandbox", "docker", "--lock", cpu_lock, "--toolchain", "cu1")
    assert done.returncode == 2
    assert "matrix.toml has no toolchain 'cu1'" in done.stderr
