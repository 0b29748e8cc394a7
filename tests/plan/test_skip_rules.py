from __future__ import annotations

from dataclasses import replace

import pytest
from plan.nouns import CPU, CPU_DEVICE, CPU_TOOLCHAIN, CU128, H200, H200_DEVICE, HERE, candidate, problem, selected

from kernel_matrix.matrix import GpuAxis, Policy, Toolchain
from kernel_matrix.model.enums import ClockPolicy, Dtype, Language
from kernel_matrix.plan import HostInventory, SkipReason, devices_matching

A100 = replace(H200_DEVICE, uuid="GPU-2", name="NVIDIA A100-SXM4-80GB", compute_capability="8.0", memory_bytes=80 << 30)
T4 = replace(H200_DEVICE, uuid="GPU-3", name="Tesla T4", compute_capability="7.5")
LOCAL = HostInventory(
    gpus=(CPU_DEVICE, H200_DEVICE), local_torch="2.13.0+cpu", local_triton="3.7.1", sandbox_reason="no daemon answers"
)


@pytest.fixture
def reason_of(plan, facts):
    """The reason of the one cell that a plan has on one GPU axis value in one dtype."""

    def found(gpu=H200, dtype=Dtype.FP32, language=Language.TRITON, facts=facts, **changes):
        item = selected(problem(dtypes=tuple(Dtype)), candidate(language=language))
        (cell,) = plan(item, gpus=(gpu,), dtypes=(dtype,), facts=facts, **changes).cells()
        return cell.reason

    return found


def test_a_host_that_has_everything_has_no_reason(reason_of):
    assert reason_of() is None
    assert reason_of(CPU) is None


def test_no_such_gpu_says_what_was_asked_and_what_is_here(reason_of, facts):
    reason = reason_of(facts=replace(facts, gpus=(CPU_DEVICE, A100)))
    assert reason.kind is SkipReason.NO_SUCH_GPU
    assert reason.text == (
        "no NVIDIA GPU here is h200 (model NVIDIA H200*, compute capability 9.0); "
        "here: NVIDIA A100-SXM4-80GB (8.0, 80 GiB)"
    )


def test_no_gpu_at_all_says_why(reason_of, facts):
    reason = reason_of(facts=replace(facts, gpus=(CPU_DEVICE,), gpu_reason="no driver is loaded"))
    assert reason.text == "this host has no NVIDIA GPU: no driver is loaded"


def test_cuda_toolchains_need_a_sandbox_with_images(reason_of):
    reason = reason_of(facts=LOCAL)
    assert reason.kind is SkipReason.NO_SANDBOX
    assert "sandbox process runs none: no daemon answers" in reason.text
    assert 'environment = "auto"' in reason.text


def test_the_cpu_toolchain_runs_with_what_is_installed(reason_of):
    assert reason_of(CPU, facts=LOCAL) is None


@pytest.mark.parametrize(
    ("changes", "kind", "words"),
    [
        ({"local_torch": None}, SkipReason.NO_SANDBOX, "needs torch 2.13.0 beside the runner"),
        (
            {"local_torch": "2.11.0"},
            SkipReason.NO_SANDBOX,
            "toolchain cpu is torch 2.13.0, beside the runner is torch 2.11.0",
        ),
        ({"local_triton": None}, SkipReason.LANGUAGE_NOT_SUPPORTED, "Triton 3.7.1 is not installed"),
        ({"local_triton": "3.6.0"}, SkipReason.LANGUAGE_NOT_SUPPORTED, "beside the runner is triton 3.6.0"),
    ],
)
def test_the_installed_versions_must_be_the_toolchains(reason_of, changes, kind, words):
    reason = reason_of(CPU, facts=replace(LOCAL, **changes))
    assert reason.kind is kind
    assert words in reason.text


def described(**changes):
    """A host whose environment is known, with ``changes`` of the toolchain."""
    known = replace(HERE, **{"platform": "cuda", "cuda": "13.0", "torch": "2.11.0", "triton": "3.6.0", **changes})
    return replace(LOCAL, environments={"here": known}, images={"here": ""}, compilers=frozenset({"cuda"}))


@pytest.mark.parametrize("language", [Language.TORCH, Language.TRITON, Language.CUDA])
def test_environment_runs_on_a_gpu_without_images(reason_of, language):
    assert reason_of(language=language, facts=described(), toolchains=(HERE,)) is None


def test_environment_is_for_the_platform_of_its_torch(plan):
    cells = plan(facts=described(), toolchains=(HERE,), gpus=(CPU, H200), dtypes=(Dtype.FP32,)).cells()
    assert [(cell.gpu.name, cell.toolchain.cuda) for cell in cells] == [("h200", "13.0")]


def test_environment_without_a_gpu_of_its_kind_is_a_warning(plan):
    found = plan(facts=described(), toolchains=(HERE,), gpus=(CPU,))
    assert found.warnings == (
        "gpu cpu has no cell: no toolchain fits it, none is for CPUs",
        "toolchain here has no cell: no gpu fits it, its PyTorch is built for NVIDIA GPUs",
    )


@pytest.mark.parametrize(
    ("facts", "language", "kind", "words"),
    [
        (described(triton=None), Language.TRITON, SkipReason.LANGUAGE_NOT_SUPPORTED, "has no Triton"),
        (
            replace(described(), compilers=frozenset()),
            Language.CUDA,
            SkipReason.LANGUAGE_NOT_SUPPORTED,
            "an environment without a compiler of cuda",
        ),
        (replace(LOCAL, images={"here": "it has no PyTorch"}), Language.TRITON, SkipReason.IMAGE_MISSING, "no PyTorch"),
        (LOCAL, Language.TRITON, SkipReason.IMAGE_MISSING, "no environment is known"),
        (replace(described(), uses_images=True), Language.TRITON, SkipReason.NO_SANDBOX, "choose --sandbox process"),
    ],
)
def test_reason_why_an_environment_does_not_run(reason_of, facts, language, kind, words):
    reason = reason_of(language=language, facts=facts, toolchains=(HERE,))
    assert reason.kind is kind
    assert words in reason.text


def test_driver_of_an_environment_is_checked_by_its_versions(reason_of):
    old = replace(H200_DEVICE, driver="470.57.02", cuda_driver="11.4")
    reason = reason_of(facts=replace(described(), gpus=(old,)), toolchains=(HERE,))
    assert reason.kind is SkipReason.DRIVER_TOO_OLD


def test_torch_candidates_do_not_need_triton(reason_of):
    assert reason_of(CPU, language=Language.TORCH, facts=replace(LOCAL, local_triton=None)) is None


def test_driver_too_old(reason_of, facts):
    old = replace(H200_DEVICE, driver="470.57.02", cuda_driver="11.4")
    reason = reason_of(facts=replace(facts, gpus=(old,)))
    assert reason.kind is SkipReason.DRIVER_TOO_OLD
    assert reason.text == "driver 470.57.02 runs CUDA up to 11.4; CUDA 12.8 needs driver 525.60.13 or newer"


def test_a_driver_between_runs_with_a_note(plan, facts):
    middle = replace(H200_DEVICE, driver="535.104.05", cuda_driver="12.2")
    found = plan(facts=replace(facts, gpus=(CPU_DEVICE, middle)))
    assert all(cell.reason is None for cell in found.cells() if cell.dtype is Dtype.FP32)
    note = "driver 535.104.05 is older than CUDA 12.8 (released with 570.26): machine code runs by minor-version"
    assert found.warnings == (f"toolchain cu128: {note} compatibility, PTX does not",)


def test_no_code_for_the_gpu_is_known_without_the_gpu(reason_of, facts):
    b200 = GpuAxis(name="b200", compute_capability="10.0")
    cu124 = replace(CU128, name="cu124", cuda="12.4", torch="2.6.0")
    reason = reason_of(b200, facts=replace(facts, gpus=()), toolchains=(cu124,))
    assert reason.kind is SkipReason.NO_CODE_FOR_GPU
    assert "no PTX that compute capability 10.0 could use" in reason.text


@pytest.mark.parametrize("language", [Language.TRITON, Language.CUDA])
def test_bf16_needs_ampere(reason_of, facts, language):
    t4 = GpuAxis(name="t4", model="Tesla T4")
    reason = reason_of(t4, Dtype.BF16, language, replace(facts, gpus=(T4,)))
    assert reason.kind is SkipReason.DTYPE_NOT_SUPPORTED
    assert reason.text == "bf16 arithmetic starts with compute capability 8.0; this device has 7.5"


def test_the_interpreter_is_wrong_for_bf16(reason_of):
    reason = reason_of(CPU, Dtype.BF16, facts=LOCAL)
    assert reason.kind is SkipReason.DTYPE_NOT_SUPPORTED
    assert "interpreter" in reason.text
    assert reason_of(CPU, Dtype.FP16, facts=LOCAL) is None
    assert reason_of(CPU, Dtype.BF16, Language.TORCH, facts=LOCAL) is None


def test_cuda_does_not_run_on_a_cpu(reason_of):
    reason = reason_of(CPU, language=Language.CUDA)
    assert (reason.kind, reason.text) == (SkipReason.LANGUAGE_NOT_SUPPORTED, "CUDA C++ needs an NVIDIA GPU")


@pytest.mark.parametrize("language", [Language.CUTE_DSL, Language.TILELANG])
def test_a_language_that_no_image_of_ours_has_must_be_declared(reason_of, language):
    reason = reason_of(language=language)
    assert reason.kind is SkipReason.LANGUAGE_NOT_SUPPORTED
    assert reason.text == (
        f"toolchain cu128 has no {language.value}: candidates in it are not run; "
        f'where its image has it, say languages = ["{language.value}"] in the matrix'
    )
    assert reason_of(language=language, toolchains=(replace(CU128, languages=(language,)),)) is None


def test_a_declared_language_is_in_images_only(reason_of):
    toolchains = (replace(CPU_TOOLCHAIN, languages=(Language.TILELANG,)),)
    assert reason_of(CPU, language=Language.TILELANG, toolchains=toolchains) is None
    reason = reason_of(CPU, language=Language.TILELANG, toolchains=toolchains, facts=LOCAL)
    assert (reason.kind, reason.text) == (
        SkipReason.LANGUAGE_NOT_SUPPORTED,
        "tilelang is in images only, and sandbox process has none",
    )


@pytest.mark.parametrize("gpu", [CPU, H200])
def test_hip_needs_an_amd_gpu(reason_of, gpu):
    reason = reason_of(gpu, language=Language.HIP)
    assert (reason.kind, reason.text) == (SkipReason.LANGUAGE_NOT_SUPPORTED, "HIP C++ needs an AMD GPU")


MI300X = GpuAxis(name="mi300x", platform="rocm", compute_capability="gfx942")
MI300X_DEVICE = replace(
    H200_DEVICE, platform="rocm", uuid="a5ff", name="AMD Instinct MI300X", compute_capability="gfx942", driver="6.16.13"
)
ROCM72 = Toolchain(name="rocm72", rocm="7.2", torch="2.10.0", triton="3.6.0")
AMD_HOST = HostInventory(gpus=(CPU_DEVICE, MI300X_DEVICE), uses_images=True, sandbox="docker", images={"rocm72": ""})


@pytest.mark.parametrize("language", [Language.TORCH, Language.TRITON, Language.HIP])
def test_cells_run_on_an_amd_gpu_with_a_rocm_toolchain(reason_of, language):
    assert reason_of(MI300X, language=language, facts=AMD_HOST, toolchains=(ROCM72,)) is None


@pytest.mark.parametrize(
    ("device", "dtype", "kind", "words"),
    [
        ({"driver": "6.10.5"}, Dtype.FP32, SkipReason.DRIVER_TOO_OLD, "ROCm 7.2 needs amdgpu 6.12.12 or newer"),
        ({"compute_capability": "gfx1103"}, Dtype.FP32, SkipReason.NO_CODE_FOR_GPU, "none for gfx1103"),
        ({}, Dtype.FP8_E4M3, SkipReason.DTYPE_NOT_SUPPORTED, "float8_e4m3fnuz"),
    ],
)
def test_reason_why_an_amd_gpu_does_not_run(reason_of, device, dtype, kind, words):
    facts = replace(AMD_HOST, gpus=(replace(MI300X_DEVICE, **device),))
    reason = reason_of(GpuAxis(name="amd", platform="rocm"), dtype=dtype, facts=facts, toolchains=(ROCM72,))
    assert reason.kind is kind
    assert words in reason.text


def test_a_rocm_toolchain_on_an_nvidia_host_has_no_gpu(reason_of, facts):
    reason = reason_of(MI300X, facts=facts, toolchains=(ROCM72,))
    assert reason.kind is SkipReason.NO_SUCH_GPU
    assert reason.text == "this host has no AMD GPU, but NVIDIA H200 (9.0, 141 GiB)"


def test_a_cuda_toolchain_on_an_amd_host_has_no_gpu(reason_of):
    reason = reason_of(H200, facts=AMD_HOST)
    assert reason.kind is SkipReason.NO_SUCH_GPU
    assert reason.text == "this host has no NVIDIA GPU, but AMD Instinct MI300X (gfx942, 141 GiB)"


def test_toolchains_of_another_vendor_have_no_cell(plan):
    assert plan(gpus=(H200,), toolchains=(ROCM72,)).warnings == (
        "gpu h200 has no cell: no toolchain fits it, none is for NVIDIA GPUs",
        "toolchain rocm72 has no cell: no gpu fits it, it is for AMD GPUs",
    )


def test_declared_language_still_needs_a_fitting_device(reason_of, facts):
    able = {"language": Language.CUTE_DSL, "toolchains": (replace(CU128, languages=(Language.CUTE_DSL,)),)}
    t4 = GpuAxis(name="t4", model="Tesla T4")
    assert "8.0 (Ampere) and newer; this device has 7.5" in reason_of(t4, facts=replace(facts, gpus=(T4,)), **able).text


def test_image_missing(reason_of, facts):
    reason = reason_of(facts=replace(facts, images={"cu128": "its digest is not what images.lock says"}))
    assert (reason.kind, reason.text) == (SkipReason.IMAGE_MISSING, "its digest is not what images.lock says")
    assert reason_of(facts=replace(facts, images={})).text == "no image is known for toolchain cu128"


def test_required_clocks_need_the_right_to_lock_them(reason_of, facts):
    bound = replace(facts, clocks_reason="the host forbids it")
    assert reason_of(facts=bound, policy=Policy(clocks=ClockPolicy.REQUIRE)).kind is SkipReason.CLOCKS
    assert reason_of(facts=bound, policy=Policy(clocks=ClockPolicy.LOCK)) is None
    assert reason_of(facts=facts, policy=Policy(clocks=ClockPolicy.REQUIRE)) is None
    assert reason_of(CPU, facts=bound, policy=Policy(clocks=ClockPolicy.REQUIRE)) is None


@pytest.mark.parametrize(
    ("axis", "matching"),
    [
        (GpuAxis(name="x", model="nvidia h200*"), [H200_DEVICE]),
        (GpuAxis(name="x", model="H200"), []),
        (GpuAxis(name="x", uuid="GPU-2"), [A100]),
        (GpuAxis(name="x", without=("GPU-2",)), [H200_DEVICE]),
        (GpuAxis(name="x", compute_capability="8.0"), [A100]),
        (GpuAxis(name="x", min_memory_gib=80), [H200_DEVICE, A100]),
        (GpuAxis(name="x", min_memory_gib=80.5), [H200_DEVICE]),
        (GpuAxis(name="x", model="*A100*", compute_capability="9.0"), []),
        (GpuAxis(name="x"), [H200_DEVICE, A100]),
        (CPU, [CPU_DEVICE]),
    ],
)
def test_all_conditions_of_an_axis_must_hold(axis, matching):
    assert devices_matching(axis, (CPU_DEVICE, H200_DEVICE, A100)) == tuple(matching)


def test_ranks_need_as_many_matching_devices(plan, facts):
    ranks = selected(problem("all_reduce", ranks=2))
    (cpu, h200) = reasons_of_axes(plan(ranks, facts=facts))
    assert cpu.kind is SkipReason.LANGUAGE_NOT_SUPPORTED
    assert h200.kind is SkipReason.NO_SUCH_GPU
    assert h200.text == "2 ranks need 2 devices that match h200, and this host has 1"
    second = replace(H200_DEVICE, uuid="GPU-2", index=1)
    assert reasons_of_axes(plan(ranks, facts=replace(facts, gpus=(CPU_DEVICE, H200_DEVICE, second))))[1] is None


def test_ranks_need_a_sandbox_with_a_network_of_its_own(plan, facts):
    of = problem("all_reduce", ranks=2)
    ranks = selected(of, candidate("all_reduce/good", language=Language.TORCH))
    assert reasons_of_axes(plan(ranks, facts=facts))[0] is None
    reasons = reasons_of_axes(plan(ranks, facts=replace(facts, own_network=False)))
    assert reasons[0].kind is SkipReason.NO_SANDBOX
    assert reasons_of_axes(plan(selected(), facts=replace(facts, own_network=False))) == [None, None]


def test_ranks_are_not_compiled_ahead_for_an_absent_device(plan, facts):
    ranks = selected(problem("all_reduce", ranks=2))
    absent = replace(facts, gpus=(CPU_DEVICE,))
    cells = list(plan(ranks, facts=absent, policy=Policy(compile_absent=True)).cells())
    assert not any(cell.compile_only for cell in cells)


def reasons_of_axes(made):
    """Reason of the first cell of each GPU axis."""
    found = {}
    for cell in made.cells():
        found.setdefault(cell.gpu.name, cell.reason)
    return list(found.values())
