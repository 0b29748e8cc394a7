"""``kernel-matrix try``: one file, judged here and now."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from kernel_matrix.cli import try_kernel
from tests.cli.terminal import ROOT, judging

REFERENCE = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        return x * 2

def get_inputs():
    return [torch.randn(64, 64)]

def get_init_inputs():
    return []
"""
RIGHT = """
import torch.nn as nn

class ModelNew(nn.Module):
    def forward(self, x):
        return x + x
"""
WRONG = RIGHT.replace("x + x", "x + 1")
BROKEN = RIGHT.replace("def forward", "def forward(")


@pytest.fixture
def folder(tmp_path):
    for name, text in {"double.py": REFERENCE, "right.py": RIGHT, "wrong.py": WRONG, "broken.py": BROKEN}.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def tried(folder, *arguments):
    return judging(folder, "try", *arguments, XDG_STATE_HOME=str(folder / "state"))


def fields(text):
    lines = [line for line in text.splitlines() if line.startswith("  ") and line[2] != " "]
    return {line[2:11].strip(): line[11:].strip() for line in lines}


@pytest.mark.torch
def test_right_kernel_passes_with_time_and_verdict(folder):
    ran = tried(folder, "right.py", "--reference", "double.py")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.startswith("double/right fp32 on ")
    found = fields(ran.stdout)
    assert found["status"] == "passed"
    assert {"time", "eager", "speed-up", "verdict", "record", "next"} <= found.keys()
    assert json.loads((folder / found["record"]).read_text())["outcome"]["status"] == "passed"


@pytest.mark.parametrize(("share", "end"), [(0.693, ", 69% of the link"), (None, "")])
def test_bus_bandwidth_is_said_with_the_share_of_the_link(share, end):
    line = try_kernel._exchanged({"bus_bytes_per_s": 3.12e11, "link_share_of_peak": share})
    assert line == f"312 GB/s bus bandwidth{end}"


@pytest.mark.torch
def test_wrong_kernel_fails_with_the_worst_element(folder):
    ran = tried(folder, "wrong.py", "--reference", "double.py")
    assert ran.returncode == 1
    found = fields(ran.stdout)
    assert found["status"] == "incorrect_values at verify"
    assert found["fault"] == "candidate"
    assert "expected" in found["worst"]


@pytest.mark.torch
def test_kernel_that_does_not_compile_shows_its_line(folder):
    ran = tried(folder, "broken.py", "--reference", "double.py")
    assert ran.returncode == 1
    assert fields(ran.stdout)["status"].startswith("compile_error")
    assert "def forward(" in ran.stdout


@pytest.mark.torch
def test_last_result_stays_until_there_is_another(folder):
    def kept():
        return [path.read_text() for path in (folder / "state").rglob("records/*.json")]

    assert tried(folder, "right.py", "--reference", "double.py").returncode == 0
    first = kept()
    assert tried(folder, "right.py", "--problem", "sofmax").returncode == 2
    assert tried(folder, "right.py", "--reference", "wrong.py").returncode == 2
    assert kept() == first
    assert tried(folder, "right.py", "--reference", "double.py").returncode == 0
    assert len(kept()) == len(first) == 1
    assert kept() != first


@pytest.mark.torch
def test_json_has_status_rows_and_the_record(folder):
    ran = tried(folder, "right.py", "--reference", "double.py", "--dtype", "fp64", "--json")
    document = json.loads(ran.stdout)
    assert (document["status"], document["fault"]) == ("passed", "none")
    assert [(row["dtype"], row["workload"]) for row in document["rows"]] == [("fp64", "default")]
    assert json.loads((folder / document["record"]).read_text())["cell"]["dtype"] == "fp64"


@pytest.mark.torch
def test_candidate_beside_its_problem_needs_no_name(folder):
    subprocess.run((sys.executable, "-m", "kernel_matrix", "init", "mine"), check=True, cwd=folder, stdout=-3)
    ran = tried(folder / "mine", "problems/squares/candidates/mine.py")
    assert ran.returncode == 0
    assert ran.stdout.startswith("squares/mine fp32 on ")
    assert "interpreted: verdict withheld" in ran.stdout


@pytest.mark.torch
def test_watched_file_is_judged_again_when_it_is_saved(folder):
    command = (sys.executable, "-m", "kernel_matrix", "try", "wrong.py", "--reference", "double.py", "--watch")
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "runner"), "XDG_STATE_HOME": str(folder / "state")}
    with subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert "incorrect_values" in next(line for line in process.stdout if "status" in line)
        (folder / "wrong.py").write_text(RIGHT)
        assert "passed" in next(line for line in process.stdout if "status" in line)
        process.send_signal(signal.SIGINT)
        process.stdout.read()
    assert process.returncode == 130


@pytest.mark.parametrize(
    ("arguments", "error", "hint"),
    [
        (["right.py"], "no problem is named", "--problem ID"),
        (["right.py", "--problem", "sofmax"], "did you mean 'softmax'?", "problems list"),
        (["absent.py", "--problem", "relu"], "absent.py cannot be read: No such file", "name the file"),
        (["right.py", "--problem", "relu", "--dtype", "fp31"], "did you mean 'fp", "--dtype: fp"),
        (["right.py", "--problem", "relu", "--workload", "smok"], "did you mean 'smoke'?", "--workload: smoke"),
        (["right.py", "--problem", "relu", "--platform", "rocm"], "no device of the platform 'rocm'", "here: cpu"),
        (["right.py", "--problem", "relu", "--ranks", "4"], "relu has 1 rank, and not 4", "leave --ranks out"),
        (["right.py", "--problem", "all_reduce", "--ranks", "9"], "all_reduce has 2 ranks, and not 9", "2 to 8"),
        (["right.py", "--reference", "absent.py"], "absent.py cannot be read", "name the file"),
        (["right.py", "--reference", "right.py"], "error: right.py:6: defines no Model", "docs problems"),
    ],
)
@pytest.mark.torch
def test_mistake_is_one_error_and_one_hint(folder, arguments, error, hint):
    ran = tried(folder, *arguments)
    assert (ran.returncode, ran.stdout) == (2, "")
    first, *_, last = ran.stderr.splitlines()
    assert first.startswith("error: ")
    assert error in ran.stderr
    assert hint in last
