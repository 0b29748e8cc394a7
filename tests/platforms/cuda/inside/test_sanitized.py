"""Starting a worker under compute-sanitizer, or directly."""

from __future__ import annotations

import subprocess
import sys

import pytest

from kernel_matrix.platforms.cuda.inside.sanitized import command_line, find_sanitizer

WORKER = [sys.executable, "-s", "-B", "-m", "kernel_matrix.inside.worker.worker"]


@pytest.fixture
def program(tmp_path, monkeypatch):
    """A compute-sanitizer on the path that prints its arguments."""
    made = tmp_path / "compute-sanitizer"
    made.write_text('#!/bin/sh\necho "$@"\n')
    made.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    return made


def test_the_program_is_found_on_the_path(program):
    assert find_sanitizer() == str(program)


def test_the_program_is_found_beside_packages(program, monkeypatch, tmp_path):
    folder = tmp_path / "site" / "nvidia" / "cu13" / "bin"
    folder.mkdir(parents=True)
    program.rename(folder / program.name)
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site")])
    assert find_sanitizer() == str(folder / program.name)


def test_the_worker_runs_below_the_tool():
    command = command_line("/bin/cs", "memcheck", ["--channel", "/channel"])
    assert command[:3] == ["/bin/cs", "--tool", "memcheck"]
    assert command[-7:] == [*WORKER, "--channel", "/channel"]


def test_without_the_program_the_worker_runs_alone():
    assert command_line(None, "memcheck", ["--channel", "/channel"]) == [*WORKER, "--channel", "/channel"]


def test_the_process_becomes_the_tool(program):
    told = ["--tool", "racecheck", "--", "--channel", "/channel"]
    argv = [sys.executable, "-m", "kernel_matrix.platforms.cuda.inside.sanitized", *told]
    ran = subprocess.run(argv, check=True, capture_output=True, text=True)
    assert ran.stdout.startswith("--tool racecheck ")
    assert ran.stdout.endswith("-m kernel_matrix.inside.worker.worker --channel /channel\n")
