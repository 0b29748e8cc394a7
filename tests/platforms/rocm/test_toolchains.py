"""Which candidates can be compiled for AMD GPUs, and what is known of their kernels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kernel_matrix.inside.wire import KernelCode
from kernel_matrix.model.enums import Dtype, Language, Role
from kernel_matrix.platforms import Gpu
from kernel_matrix.platforms.registry import get_platform, platform_name
from kernel_matrix.platforms.rocm import toolchains
from kernel_matrix.sandboxes import ProcessLabels, RoleSpec
from kernel_matrix.sandboxes.process import ProcessSandbox

AMD = get_platform("rocm")
KERNEL = KernelCode("scale", "gfx942", 64, 0, 0, 1024, 0, "ab" * 32, 20, 0, 256, ("mfma",))


def test_the_vendor_is_another_name_of_the_platform() -> None:
    assert platform_name("amd") == "rocm"


@pytest.mark.parametrize("language", list(Language))
def test_triton_is_compiled_without_a_device_and_hip_with_rocm(language: Language) -> None:
    assert AMD.compiles(language, {"torch": "2.13.0", "triton": "3.7.1"}) is (language is Language.TRITON)
    assert AMD.compiles(language, {"torch": "2.13.0", "rocm": "7.2"}) is (language is Language.HIP)
    assert not AMD.compiles(language, {"torch": "2.13.0"})


def test_compilers_get_the_architecture_of_the_device() -> None:
    device = Gpu(platform="rocm", uuid="a", name="AMD Instinct MI300X", compute_capability="gfx942")
    assert AMD.compile_settings(device) == {"PYTORCH_ROCM_ARCH": "gfx942"}
    assert AMD.compile_settings(replace(device, compute_capability=None)) == {}


def test_hipcc_on_the_search_path_is_the_local_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchains, "PROGRAMS", str(tmp_path / "rocm"))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert AMD.local_compiler() == ""
    (tmp_path / "hipcc").write_text("#!/bin/sh\n")
    (tmp_path / "hipcc").chmod(0o755)
    assert AMD.local_compiler().startswith(f"{tmp_path / 'hipcc'} ")


def test_languages_of_another_vendor_are_refused() -> None:
    assert AMD.language_skip_reason(Language.CUDA, "gfx942") == "CUDA C++ needs an NVIDIA GPU"
    assert AMD.language_skip_reason(Language.TRITON, "gfx942") is None
    assert AMD.dtype_skip_reason(Dtype.BF16, Language.TRITON, "gfx942") is None


def test_a_device_that_is_not_there_is_described_by_its_name() -> None:
    assert AMD.compile_target("gfx942") == "gfx942"
    assert AMD.compile_limits("gfx942") == {"shared_bytes": 65536, "multiprocessors": 304}
    assert AMD.compile_limits("gfx9999") == {}


def test_kernels_are_compared_with_their_architectures_limits() -> None:
    assert AMD.launch_failure_reason(KERNEL) == ""
    assert "LDS" in AMD.launch_failure_reason(replace(KERNEL, shared_bytes=1 << 20))
    assert AMD.occupancy(KERNEL) == 1.0
    unknown = replace(KERNEL, compute_capability="gfx9999", shared_bytes=1 << 20)
    assert (AMD.launch_failure_reason(unknown), AMD.occupancy(unknown)) == ("", None)
    assert AMD.occupancy(replace(KERNEL, threads=None)) is None


def test_no_device_is_used_yet() -> None:
    found = AMD.inventory()
    assert found.gpus == ()
    assert "AMD" in found.reason


def test_processes_see_the_toolkit_and_what_it_links_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rocm-7.2.4" / "bin").mkdir(parents=True)
    (tmp_path / "rocm").symlink_to("rocm-7.2.4")
    monkeypatch.setattr(AMD, "PROGRAM_FOLDERS", (str(tmp_path / "rocm" / "bin"),))
    labels = ProcessLabels(run_id="r", cell_id="c", session=0, gpu_uuid="cpu", owner="1:2:3")
    builder = RoleSpec(role=Role.BUILDER, labels=labels, image=None, module="timeit")
    shown = [bind["target"] for bind in ProcessSandbox().describe(builder)["orders"]["binds"]]
    assert {str(tmp_path / "rocm"), str(tmp_path / "rocm-7.2.4")} <= set(shown)
