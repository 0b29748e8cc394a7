"""Triton's kernels compiled for GPUs that are not here: real compilers, no device."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

pytest.importorskip("triton")
torch = pytest.importorskip("torch")

from triton.runtime.jit import JITFunction  # noqa: E402  # after what it needs

from kernel_matrix.inside.build.call_forms import CompiledAhead, CompileTarget, call_form  # noqa: E402
from kernel_matrix.model.enums import Dtype  # noqa: E402
from kernel_matrix.platforms.cuda.inside.build.machine_code import kernels_in  # noqa: E402
from kernel_matrix.platforms.cuda.inside.build.triton_target import (  # noqa: E402  # after what they need
    compile_ahead,
)
from tests.inside.scale import KERNEL, PROBLEM  # noqa: E402

pytestmark = pytest.mark.torch

PROBLEMS = Path(__file__).parents[4] / "problems"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "triton"
    monkeypatch.setenv("TRITON_CACHE_DIR", str(folder))
    return folder


@pytest.fixture
def compiled(tmp_path: Path, cache: Path):
    """Compiles a source against a problem; what lies in Triton's folder afterwards is in ``cache``."""

    def run(
        source: str, *, problem: str = PROBLEM, arch: str = "9.0", dtype: Dtype = Dtype.FP32, **values: int
    ) -> CompiledAhead:
        candidate, reference = tmp_path / "candidate.py", tmp_path / "problem.py"
        candidate.write_text(source)
        reference.write_text(problem)
        return compile_ahead(candidate, "ModelNew", [call_form(reference, values, dtype)], dtype, CompileTarget(arch))

    return run


def model(body: str) -> str:
    return f"{KERNEL}\nclass ModelNew(nn.Module):\n    def forward(self, x):\n        {body}\n"


LAUNCH = "out = torch.empty_like(x); scale_kernel[(1,)](x, out, x.numel(), BLOCK=1024); return out"


@pytest.mark.parametrize("arch", ["7.5", "8.0", "8.6", "8.9", "9.0", "9.0a", "10.0", "12.0"])
def test_a_kernel_is_compiled_for_each_architecture(compiled, cache: Path, arch: str) -> None:
    assert compiled(model(LAUNCH), arch=arch) == CompiledAhead()
    (kernel,) = kernels_in(cache, "")
    assert kernel.name == "scale_kernel"
    assert kernel.compute_capability == arch.rstrip("a")
    assert kernel.registers > 0


@pytest.mark.parametrize(("problem", "candidate"), [("linear_gelu", "triton_fused"), ("matmul", "triton_tiled")])
def test_shipped_candidates_with_and_without_parameters(cache: Path, problem: str, candidate: str) -> None:
    form = call_form(PROBLEMS / problem / "reference.py", {}, Dtype.FP16)
    source = PROBLEMS / problem / "candidates" / f"{candidate}.py"
    assert compile_ahead(source, "ModelNew", [form], Dtype.FP16, CompileTarget("8.0")) == CompiledAhead()
    assert kernels_in(cache, "")[0].shared_bytes > 0


def test_every_configuration_of_an_autotuned_kernel_is_compiled(compiled, cache: Path) -> None:
    tuned = KERNEL.replace(
        "@triton.jit",
        "@triton.autotune([triton.Config({'BLOCK': b}, num_warps=w) for b in (128, 256) for w in (2, 4)], key=['n'])\n"
        "@triton.jit",
    )
    body = (
        "out = torch.empty_like(x); scale_kernel[lambda m: (triton.cdiv(1000, m['BLOCK']),)](x, out, 1000); return out"
    )
    assert compiled(tuned + model(body)[len(KERNEL) :]) == CompiledAhead()
    assert len(list(cache.rglob("*.cubin"))) == 4


def test_types_and_alignment_are_those_of_the_call(compiled, cache: Path) -> None:
    launches = (f"scale_kernel[(1,)]({x}, out, 999, BLOCK=1024)" for x in ("x", "x[1:]"))
    both = f"out = torch.empty_like(x); {'; '.join(launches)}; return out"
    assert compiled(model(both), dtype=Dtype.BF16) == CompiledAhead()
    assert len(list(cache.rglob("*.cubin"))) == 2
    assert all("bf16" in path.read_text() for path in cache.rglob("*.ttir"))


def test_a_candidate_may_ask_what_the_device_is(compiled, cache: Path) -> None:
    body = (
        "assert x.is_cuda and torch.cuda.is_available(); props = torch.cuda.get_device_properties(x.device); "
        "assert torch.cuda.get_device_capability() == (12, 0) and props.multi_processor_count; "
        "assert triton.runtime.driver.active.utils.get_device_properties(0)['max_shared_mem'] > 0; " + LAUNCH
    )
    assert compiled(model(body), arch="12.0") == CompiledAhead()
    assert len(kernels_in(cache, "")) == 1


def test_driver_helper_library_is_compiled_and_needs_a_driver(compiled, cache: Path) -> None:
    if shutil.which("gcc") is None:
        pytest.skip("no C compiler")
    compiled(model(LAUNCH))
    (library,) = cache.rglob("cuda_utils*.so")
    elf = library.read_bytes()
    assert b"\0libcuda.so.1\0" in elf
    assert b"\0cuModuleLoadData\0" in elf


@pytest.mark.parametrize("compiler", ["no-such-compiler", "false"])
def test_without_a_c_compiler_only_the_kernels_are_compiled(compiler, compiled, cache: Path, monkeypatch) -> None:
    monkeypatch.setenv("CC", compiler)
    assert compiled(model(LAUNCH)) == CompiledAhead()
    assert kernels_in(cache, "")
    assert not list(cache.rglob("*.so"))


def test_a_compilers_error_is_raised(compiled) -> None:
    with pytest.raises(Exception, match="no_such_thing"):
        compiled(model(LAUNCH).replace("tl.load(", "tl.no_such_thing("))


def test_a_forward_that_needs_values_stops_and_says_so(compiled, cache: Path) -> None:
    done = compiled(model("count = int(x.sum().item()); " + LAUNCH))
    assert "without values" in done.stopped
    assert not kernels_in(cache, "")


def test_workloads_set_the_problems_constants(tmp_path: Path) -> None:
    (tmp_path / "problem.py").write_text(PROBLEM)
    form = call_form(tmp_path / "problem.py", {"N": 17}, Dtype.FP64)
    (shape,) = form.tensors
    assert (shape.dtype, shape.size, shape.stride) == ("float64", (17,), (1,))


def test_nothing_is_left_standing_in(compiled) -> None:
    before = (JITFunction.run, torch.cuda.is_available)
    compiled(model(LAUNCH))
    assert (JITFunction.run, torch.cuda.is_available) == before
