"""Cells that are only compiled: which there are, and what keeps them from being compiled here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from plan.nouns import CPU, CPU_DEVICE, CPU_TOOLCHAIN, CU128, H200, candidate, problem, selected

from kernel_matrix.matrix import Exclude, GpuAxis, Match, Matrix, Override, Policy
from kernel_matrix.model.enums import Dtype, Language
from kernel_matrix.plan import Cell, HostInventory, Selection, SkipReason, make_plan
from kernel_matrix.plan.cost import expected_compile_seconds

T4 = GpuAxis(name="t4", compute_capability="7.5")
UNKNOWN = GpuAxis(name="some", model="NVIDIA *")
CANDIDATES = selected(
    problem(),
    candidate("softmax/triton"),
    candidate("softmax/cuda", language=Language.CUDA),
    candidate("softmax/torch", language=Language.TORCH),
    candidate("softmax/tilelang", language=Language.TILELANG),
)

Cells = Callable[..., dict[tuple[str, str, str], Cell]]


@pytest.fixture
def compiled(matrix: Matrix, facts: HostInventory) -> Cells:
    """(gpu, toolchain, candidate) → cell, of a plan that compiles everything; in one dtype unless told otherwise."""

    def planned(facts: HostInventory = facts, *, compile_only: bool = True, **changes: object) -> dict:
        changed = replace(matrix, **{"gpus": (CPU, H200, T4), "dtypes": (Dtype.FP32,), **changes})
        cells = make_plan(changed, Selection(problems=(CANDIDATES,)), facts, compile_only=compile_only).cells()
        return {(c.gpu.name, c.toolchain.name, c.candidate.id.split("/")[1]): c for c in cells}

    return planned


def _runnable(cells: dict[tuple[str, str, str], Cell]) -> Iterator[tuple[str, str, str]]:
    return (key for key, cell in cells.items() if cell.reason is None)


def test_every_gpu_with_a_compute_capability_is_compiled_for(compiled: Cells) -> None:
    cells = compiled()
    assert all(cell.compile_only for cell in cells.values())
    assert set(_runnable(cells)) == {
        (gpu, toolchain, language)
        for gpu in ("h200", "t4")
        for toolchain, language in (("cpu", "triton"), ("cu128", "triton"), ("cu128", "cuda"))
    }


def test_axis_without_compute_capability_compiles_nothing(compiled: Cells) -> None:
    assert not compiled(gpus=(UNKNOWN,))


def test_compiling_is_another_question_than_running(compiled: Cells) -> None:
    key = ("h200", "cu128", "triton")
    run, built = compiled(compile_only=False)[key], compiled()[key]
    assert not run.compile_only
    assert run.id != built.id
    assert built.expected_s == expected_compile_seconds(Language.TRITON)


def test_a_dtype_that_the_gpu_lacks_is_compiled_all_the_same(compiled: Cells) -> None:
    cell = compiled(dtypes=(Dtype.BF16,))["t4", "cu128", "triton"]
    assert cell.reason is None


def test_what_is_excluded_is_not_compiled(compiled: Cells) -> None:
    rule = Exclude(match=Match(gpu=("t4",)), reason="nobody has one")
    reasons = {cell.reason.kind for (gpu, *_), cell in compiled(exclude=(rule,)).items() if gpu == "t4"}
    assert reasons == {SkipReason.EXCLUDED}


def test_an_image_is_needed(compiled: Cells, facts: HostInventory) -> None:
    cell = compiled(replace(facts, images={"cpu": ""}))["t4", "cu128", "cuda"]
    assert cell.reason is not None
    assert cell.reason.kind is SkipReason.IMAGE_MISSING


NO_IMAGES = HostInventory(gpus=(CPU_DEVICE,), local_torch="2.13.0+cpu", local_triton="3.7.1")


def test_without_images_triton_compiles_with_what_is_installed(compiled: Cells) -> None:
    cells = compiled(NO_IMAGES)
    assert set(_runnable(cells)) == {("h200", "cpu", "triton"), ("t4", "cpu", "triton")}
    assert cells["t4", "cu128", "cuda"].reason.kind is SkipReason.NO_SANDBOX
    assert "beside the runner is torch 2.13.0+cpu" in cells["t4", "cu128", "triton"].reason.text


def test_without_images_and_without_triton_nothing_compiles(compiled: Cells) -> None:
    assert not set(_runnable(compiled(replace(NO_IMAGES, local_triton=None))))


# ---- policy.compile_absent


def test_the_policy_compiles_for_gpus_that_are_not_here(compiled: Cells) -> None:
    cells = compiled(compile_only=False, policy=Policy(compile_absent=True))
    assert {key for key, cell in cells.items() if cell.compile_only} == {
        ("t4", "cpu", "triton"),
        ("t4", "cu128", "triton"),
        ("t4", "cu128", "cuda"),
    }
    assert not cells["h200", "cu128", "cuda"].compile_only
    assert cells["t4", "cu128", "torch"].reason.kind is SkipReason.NO_SUCH_GPU
    assert ("cpu", "cpu", "torch") in cells


def test_the_policy_may_be_that_of_some_cells(compiled: Cells) -> None:
    rule = Override(match=Match(candidate=("*/cuda",)), policy={"compile_absent": True})
    cells = compiled(compile_only=False, overrides=(rule,))
    assert {key for key, cell in cells.items() if cell.compile_only} == {("t4", "cu128", "cuda")}


def test_without_being_asked_nothing_is_only_compiled(compiled: Cells) -> None:
    cells = compiled(compile_only=False)
    assert not any(cell.compile_only for cell in cells.values())
    assert {toolchain for gpu, toolchain, _ in cells if gpu == "t4"} == {"cu128"}


def test_cpu_and_gpu_toolchains_stay_apart_in_what_runs(compiled: Cells) -> None:
    cells = compiled(compile_only=False, policy=Policy(compile_absent=True), toolchains=(CPU_TOOLCHAIN, CU128))
    assert all(cell.compile_only for (gpu, toolchain, _), cell in cells.items() if (gpu, toolchain) == ("t4", "cpu"))
    assert not any((gpu, toolchain) == ("h200", "cpu") for gpu, toolchain, _ in cells)
