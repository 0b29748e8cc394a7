"""The folder of a run: gone with it, and gone after it was killed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kernel_matrix.attempt.scratch import scratch_folder, sweep_scratch

ROOT = Path(__file__).parents[2]
HOLDS = """
from kernel_matrix.attempt.scratch import scratch_folder
with scratch_folder() as f: print(f, flush=True); input()
"""
WITHOUT_DESCRIPTORS = """
import resource
from kernel_matrix.attempt.scratch import scratch_folder
with scratch_folder() as folder:
    (folder / "inner/deep").mkdir(parents=True)
    resource.setrlimit(resource.RLIMIT_NOFILE, (5, 5))  # enough to remove files, not to enter the inner folder
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
def other_runner(temporary):
    """Another process that holds a folder; (process, folder)."""
    with subprocess.Popen(
        (sys.executable, "-c", HOLDS),
        env={"TMPDIR": str(temporary), "PYTHONPATH": str(ROOT / "runner")},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield process, Path(process.stdout.readline().strip())
        process.kill()


def test_it_is_gone_whatever_happens(temporary):
    def interrupted():
        with scratch_folder() as folder:
            assert folder.stat().st_mode & 0o777 == 0o711
            (folder / "file").touch()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert list(temporary.iterdir()) == []


def test_a_living_runners_folder_is_left_alone(other_runner):
    with scratch_folder() as mine:
        assert sweep_scratch() == []
        assert mine.is_dir()
    assert other_runner[1].is_dir()


def test_a_dead_runners_folder_is_swept(other_runner):
    process, folder = other_runner
    process.kill()
    process.wait()
    assert folder.is_dir()
    assert sweep_scratch() == [f"folder {folder} of a run whose runner is gone"]
    assert not folder.exists()


def test_what_only_looks_like_one_is_left_alone(temporary):
    elsewhere = temporary / "elsewhere"
    elsewhere.mkdir()
    (temporary / "kernel-matrix-run-1.1.00000000.link").symlink_to(elsewhere)
    (temporary / "kernel-matrix-run-1.1.00000000.file").touch()
    (temporary / "kernel-matrix-run-no-owner").mkdir()
    assert sweep_scratch() == []
    assert len(list(temporary.iterdir())) == 4


def test_scratch_folder_without_free_descriptors_is_swept(temporary):
    environment = {"TMPDIR": str(temporary), "PYTHONPATH": str(ROOT / "runner")}
    subprocess.run((sys.executable, "-c", WITHOUT_DESCRIPTORS), env=environment, check=True)
    (left,) = temporary.iterdir()
    assert sweep_scratch() == [f"folder {left} of a run whose runner is gone"]
    assert list(temporary.iterdir()) == []
