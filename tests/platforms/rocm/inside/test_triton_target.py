"""Triton's kernels compiled for AMD GPUs that are not here: real compilers, no device."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("triton")
torch = pytest.importorskip("torch")

from kernel_matrix.inside.build.call_forms import CompiledAhead, CompileTarget, call_form  # noqa: E402
from kernel_matrix.model.enums import Dtype  # noqa: E402
from kernel_matrix.platforms.registry import get_platform  # noqa: E402
from kernel_matrix.platforms.rocm.inside.build.machine_code import kernels_in  # noqa: E402
from kernel_matrix.platforms.rocm.inside.build.triton_target import (  # noqa: E402
    capability_of,
    compile_ahead,
)
from tests.inside.scale import KERNEL, PROBLEM  # noqa: E402

pytestmark = pytest.mark.torch

PROBLEMS = Path(__file__).parents[4] / "problems"
ARCHITECTURES = {"gfx942": "mfma", "gfx950": "mfma", "gfx1100": "wmma", "gfx1201": "wmma"}
"""Architecture → its instructions for matrix products."""
LAUNCH = "out = torch.empty_like(x); scale_kernel[(1,)](x, out, x.numel(), BLOCK=1024); return out"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "triton"
    monkeypatch.setenv("TRITON_CACHE_DIR", str(folder))
    return folder


def compiled(folder: Path, arch: str, body: str = LAUNCH, *, kernel: str = KERNEL) -> CompiledAhead:
    candidate, problem = folder / "candidate.py", folder / "problem.py"
    candidate.write_text(f"{kernel}\nclass ModelNew(nn.Module):\n    def forward(self, x):\n        {body}\n")
    problem.write_text(PROBLEM)
    return compile_ahead(candidate, "ModelNew", [call_form(problem, {}, Dtype.FP32)], Dtype.FP32, CompileTarget(arch))


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_a_matrix_product_uses_its_architectures_instructions(cache: Path, arch: str) -> None:
    form = call_form(PROBLEMS / "matmul" / "reference.py", {}, Dtype.FP16)
    source = PROBLEMS / "matmul" / "candidates" / "triton_tiled.py"
    assert compile_ahead(source, "ModelNew", [form], Dtype.FP16, CompileTarget(arch)) == CompiledAhead()
    (kernel,) = kernels_in(cache, "")
    assert (kernel.compute_capability, kernel.matrix_instructions) == (arch, (ARCHITECTURES[arch],))
    assert min(kernel.registers, kernel.scalar_registers or 0, kernel.threads or 0, kernel.shared_bytes) > 0


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_registers_limit_the_occupancy_as_the_compiler_says(cache: Path, arch: str) -> None:
    form = call_form(PROBLEMS / "linear_gelu" / "reference.py", {}, Dtype.FP16)
    source = PROBLEMS / "linear_gelu" / "candidates" / "triton_fused.py"
    compile_ahead(source, "ModelNew", [form], Dtype.FP16, CompileTarget(arch))
    (kernel,) = kernels_in(cache, "")
    (assembly,) = cache.rglob("*.amdgcn")
    waves = int(re.findall(r"; Occupancy: (\d+)", assembly.read_text())[-1])
    limits = get_platform("rocm").occupancy(kernel)
    assert limits == waves / (8 if arch.startswith("gfx9") else 16)


def test_a_candidate_sees_the_architecture(tmp_path: Path, cache: Path) -> None:
    body = (
        "assert torch.version.hip is not None and torch.version.cuda is None; "
        "props = torch.cuda.get_device_properties(x.device); assert props.gcnArchName == 'gfx942'; "
        "assert torch.cuda.get_device_capability() == (9, 4); "
        "assert triton.runtime.driver.active.get_current_target().backend == 'hip'; " + LAUNCH
    )
    before = torch.version.hip
    assert compiled(tmp_path, "gfx942", body) == CompiledAhead()
    assert len(kernels_in(cache, "")) == 1
    assert torch.version.hip == before


def test_an_architecture_that_triton_does_not_know_is_named(tmp_path: Path, cache: Path) -> None:
    done = compiled(tmp_path, "gfx803")
    assert re.fullmatch(r"Triton \S+ does not compile for hip gfx803", done.stopped)
    assert kernels_in(cache, "") == []


@pytest.mark.usefixtures("cache")
def test_an_error_of_the_candidate_is_not_the_architectures(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="no_such_thing"):
        compiled(tmp_path, "gfx942", kernel=KERNEL.replace("tl.load(", "tl.no_such_thing("))


@pytest.mark.parametrize(
    ("name", "capability"), [("gfx90a", (9, 0)), ("gfx942", (9, 4)), ("gfx1100", (11, 0)), ("gfx1201", (12, 0))]
)
def test_the_version_is_read_from_the_name(name: str, capability: tuple[int, int]) -> None:
    assert capability_of(name) == capability


@pytest.mark.parametrize("name", ["", "gfx", "9.0", "gfx94", "mi300x", "gfx942:xnack-"])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="is not the name"):
        capability_of(name)
