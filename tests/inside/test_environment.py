"""Versions and settings inside: read from their place, None if absent."""
# ruff: noqa: E402  # without torch this file is skipped before the core is imported

import importlib.metadata
import platform
import re
from dataclasses import asdict
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from kernel_matrix.inside import environment
from kernel_matrix.inside.environment import read_environment
from kernel_matrix.inside.platform import load_platform
from kernel_matrix.model.messages import InsideEnvironment, dumps

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def found():
    return read_environment(load_platform("cpu"))


def test_versions_are_those_of_this_process(found):
    assert found.python == platform.python_version()
    assert found.torch == torch.__version__
    assert type(found.torch) is str, "torch's own version class compares in ways of its own"
    assert found.threads == torch.get_num_threads()
    assert found.triton == importlib.metadata.version("triton")
    assert re.fullmatch(r"glibc-\d+\.\d+", found.libc)
    assert found.platform.startswith("Linux-")
    assert found.device_name


def test_on_a_cpu_nothing_of_a_gpu_is_claimed(found):
    gpu = ("cudnn", "nvcc", "cuda_driver", "libcuda", "compute_capability", "l2_bytes")
    assert {name: getattr(found, name) for name in gpu} == dict.fromkeys(gpu)


def test_what_is_found_can_be_written_down(found):
    assert isinstance(found, InsideEnvironment)
    assert dumps(found)
    assert set(asdict(found)["settings"]) >= {"matmul_allow_tf32", "cudnn_allow_tf32"}


def test_ptxas_is_the_one_that_triton_carries(found, tmp_path, monkeypatch):
    bundled = environment._bundled_ptxas()
    assert "triton" in Path(bundled).parts
    assert re.fullmatch(r"\d+\.\d+\.\d+", found.ptxas)
    monkeypatch.setenv("PATH", str(tmp_path))
    fake(tmp_path / "ptxas", "echo 'Cuda compilation tools, release 1.2, V1.2.3'")
    assert environment.read_environment(load_platform("cpu")).ptxas == found.ptxas


def test_settings_that_change_results_are_told_when_they_are_set(monkeypatch):
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "0")
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setenv("SECRET_TOKEN", "s")
    settings = environment._settings()
    assert settings["TRITON_DEFAULT_FP_FUSION"] == "0"
    assert "TRITON_INTERPRET" not in settings
    assert "SECRET_TOKEN" not in settings
    assert settings["matmul_allow_tf32"] in {"true", "false"}


def fake(path, script):
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


TOOLS = {
    "nvcc": ("echo 'Cuda compilation tools, release 12.8, V12.8.93'", "12.8.93"),
    "says nothing of a version": ("echo hello", None),
    "fails": ("exit 3", None),
}


@pytest.mark.parametrize("name", TOOLS)
def test_a_tool_is_asked_for_its_version(name, tmp_path):
    script, version = TOOLS[name]
    assert environment._tool_version(fake(tmp_path / "tool", script)) == version


def test_tool_version_missing_or_broken_tool_is_none(tmp_path):
    assert environment._tool_version(None) is None
    assert environment._tool_version(str(tmp_path / "absent")) is None
    (tmp_path / "data").write_text("no program")
    assert environment._tool_version(str(tmp_path / "data")) is None


def test_a_package_that_is_not_installed_has_no_version():
    assert environment._installed_version("no-package-of-this-name") is None
