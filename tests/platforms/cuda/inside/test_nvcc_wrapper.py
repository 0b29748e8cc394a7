"""The stand-in for nvcc: the compiler's own words and exit code reach the caller, its remarks the log."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys

import pytest

from kernel_matrix.platforms.cuda.inside.build.nvcc_wrapper import COMPILER, LOG, find_nvcc, wrapper_settings

FAKE = """#!/bin/sh
echo "$@" > {told}
echo "ptxas info    : Used 8 registers" >&2
echo "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads" >&2
echo "kernel.cu(3): error: expected a ;" >&2
echo out
exit 2
"""


@pytest.fixture
def compile_(tmp_path, monkeypatch):
    """Compile through the stand-in with a compiler that only talks; returns what came of it and what it was told."""
    nvcc = tmp_path / "cuda" / "bin" / "nvcc"
    nvcc.parent.mkdir(parents=True)
    nvcc.write_text(FAKE.format(told=tmp_path / "told"))
    nvcc.chmod(0o755)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "cuda"))

    def run(*arguments, **env):
        command = [*shlex.split(wrapper_settings()[COMPILER]), *arguments]
        done = subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True, check=False)
        return done, (tmp_path / "told").read_text().split()

    return run


def test_remarks_go_aside_and_all_else_comes_through(compile_, tmp_path):
    log = tmp_path / "log"
    log.write_text("before\n")
    done, told = compile_("-c", "a b.cu", **{LOG: str(log)})
    assert (done.returncode, done.stdout) == (2, "out\n")
    assert done.stderr == "kernel.cu(3): error: expected a ;\n"
    assert log.read_text().splitlines()[:2] == ["before", "ptxas info    : Used 8 registers"]
    assert "0 bytes spill stores" in log.read_text()
    assert told == ["-c", "a", "b.cu", "-Xptxas=-v", "--no-compress"]


def test_where_no_log_is_asked_for_it_is_nvcc_and_nothing_more(compile_):
    done, told = compile_("-c", "b.cu")
    assert (done.returncode, told) == (2, ["-c", "b.cu"])
    assert done.stderr.startswith("ptxas info")


def test_the_compiler_is_the_one_that_torch_would_take(tmp_path, monkeypatch):
    for name in ("home", "path"):
        (tmp_path / name / "bin").mkdir(parents=True)
        (tmp_path / name / "bin" / "nvcc").write_text("#!/bin/sh\n")
        (tmp_path / name / "bin" / "nvcc").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "path" / "bin"))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "home"))
    assert find_nvcc() == str(tmp_path / "home" / "bin" / "nvcc")
    monkeypatch.delenv("CUDA_HOME")
    monkeypatch.delenv("CUDA_PATH", raising=False)
    assert find_nvcc() == str(tmp_path / "path" / "bin" / "nvcc")


def test_without_a_compiler_there_is_nothing_to_stand_in_for(monkeypatch):
    monkeypatch.setattr("kernel_matrix.platforms.cuda.inside.build.nvcc_wrapper.shutil.which", lambda _: None)
    assert wrapper_settings() == {}


def test_builder_and_user_name_the_same_compiler(compile_, tmp_path, monkeypatch):
    before = wrapper_settings()
    monkeypatch.chdir(tmp_path)
    assert wrapper_settings() == before
    assert shlex.split(before[COMPILER])[0] == sys.executable
