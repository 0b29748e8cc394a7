from __future__ import annotations

from dataclasses import replace

import pytest
from plan.nouns import CPU, CPU_DEVICE, CPU_TOOLCHAIN, CU128, H200, H200_DEVICE, candidate, problem, selected

from kernel_matrix.matrix import Exclude, Include, Match, Override, Policy, Protocol
from kernel_matrix.model.enums import Dtype, Language, Tier
from kernel_matrix.plan import SkipReason
from kernel_matrix.sources import Workload


def places(cells):
    return [(cell.gpu.name, cell.toolchain.name, cell.dtype.value) for cell in cells]


def reasons(cells):
    return {cell.reason and cell.reason.kind for cell in cells}


def test_toolchains_pair_with_devices_of_their_platform(plan):
    assert places(plan().cells()) == [
        ("cpu", "cpu", "fp32"),
        ("cpu", "cpu", "bf16"),
        ("h200", "cu128", "fp32"),
        ("h200", "cu128", "bf16"),
    ]


def test_an_axis_value_that_pairs_with_nothing_is_told(plan):
    found = plan(toolchains=(CU128,))
    assert places(found.cells()) == [("h200", "cu128", "fp32"), ("h200", "cu128", "bf16")]
    assert found.warnings == ("gpu cpu has no cell: no toolchain fits it, none is for CPUs",)
    assert plan(gpus=(CPU,)).warnings == ("toolchain cu128 has no cell: no gpu fits it, it is for NVIDIA GPUs",)


def test_a_cell_carries_what_is_needed_to_run_it(plan):
    item = selected(problem(), candidate("softmax/a"), candidate("softmax/b", language=Language.TORCH))
    cells = list(plan(item, gpus=(H200,), dtypes=(Dtype.FP32,)).cells())
    assert [cell.candidate.id for cell in cells] == ["softmax/a", "softmax/b"]
    assert cells[0].problem is item.problem
    assert cells[0].workloads == item.workloads
    assert (cells[0].protocol, cells[0].policy) == (Protocol(), Policy())
    assert cells[0].reason is None
    assert cells[0].expected_s > 0


def test_cells_can_be_iterated_again(plan):
    found = plan()
    assert list(found.cells()) == list(found.cells())
    assert list(found.runnable()) == [cell for cell in found.cells() if cell.reason is None]


def test_exclude_wins_over_every_other_reason(plan):
    rule = Exclude(match=Match(gpu=("c*",), dtype=("bf16",)), reason="half precision is slow here")
    found = {place: cell.reason for place, cell in zip(*_placed(plan(exclude=(rule,))), strict=True)}
    assert found["cpu", "cpu", "bf16"].kind is SkipReason.EXCLUDED
    assert found["cpu", "cpu", "bf16"].text == "excluded because half precision is slow here"
    assert found["cpu", "cpu", "fp32"] is None


def _placed(found):
    cells = list(found.cells())
    return places(cells), cells


@pytest.mark.parametrize(
    "match",
    [
        Match(gpu=("h200",)),
        Match(toolchain=("cu*",)),
        Match(problem=("soft*",), gpu=("h200",)),
        Match(candidate=("*/good",), gpu=("h200",)),
        Match(language=("triton",), gpu=("h200",)),
        Match(category=("reduc*",), gpu=("h200",)),
    ],
)
def test_a_rule_matches_on_every_axis(plan, match):
    cells = list(plan(exclude=(Exclude(match=match, reason="x"),)).cells())
    assert {place[0] for place, cell in zip(places(cells), cells, strict=True) if cell.reason} >= {"h200"}
    assert next(c for c in cells if c.gpu.name == "cpu" and c.dtype is Dtype.FP32).reason is None


@pytest.mark.parametrize("key", ["problem", "candidate", "category", "language", "gpu", "toolchain", "dtype"])
def test_a_rule_that_misses_on_one_axis_does_not_match(plan, key):
    rule = Exclude(match=replace(Match(gpu=("*",)), **{key: ("elsewhere",)}), reason="x")
    assert SkipReason.EXCLUDED not in reasons(plan(exclude=(rule,)).cells())


def test_include_adds_dtypes_for_matching_cells_only(plan):
    items = selected(problem(dtypes=tuple(Dtype))), selected(problem("relu", dtypes=tuple(Dtype)))
    rule = Include(match=Match(problem=("softmax",), gpu=("h200",)), dtypes=(Dtype.FP64,), reason="accumulates")
    added = [cell for cell in plan(*items, include=(rule,)).cells() if cell.dtype is Dtype.FP64]
    assert [(cell.gpu.name, cell.problem.id) for cell in added] == [("h200", "softmax")]
    assert added[0].reason is None


def test_exclude_does_not_touch_what_is_included(plan):
    include = Include(match=Match(gpu=("h200",)), dtypes=(Dtype.BF16,), reason="wanted all the same")
    exclude = Exclude(match=Match(dtype=("bf16",)), reason="no half precision")
    cells = list(plan(include=(include,), exclude=(exclude,)).cells())
    assert [place for place, cell in zip(places(cells), cells, strict=True) if cell.reason] == [("cpu", "cpu", "bf16")]


def test_later_overrides_win(plan):
    first = Override(match=Match(), protocol={"sessions": 3, "trials": 2}, policy={"pids": 64})
    second = Override(match=Match(gpu=("h200",)), protocol={"sessions": 7, "tier": Tier.PUBLISH})
    cells = {cell.gpu.name: cell for cell in plan(overrides=(first, second)).cells()}
    assert (cells["cpu"].protocol.sessions, cells["h200"].protocol.sessions) == (3, 7)
    assert cells["h200"].protocol.tier is Tier.PUBLISH
    assert cells["h200"].protocol.spec.trials == 2
    assert cells["h200"].policy.pids == 64


def test_overridden_workloads_replace_selected_ones_that_exist(plan):
    items = selected(), selected(problem("relu", workloads=(Workload(name="default"),)))
    rule = Override(match=Match(gpu=("cpu",)), workloads=("smoke",))
    named = {
        (cell.gpu.name, cell.problem.id): [workload.name for workload in cell.workloads]
        for cell in plan(*items, overrides=(rule,)).cells()
    }
    assert named == {
        ("cpu", "softmax"): ["smoke"],
        ("cpu", "relu"): ["default"],
        ("h200", "softmax"): ["smoke", "default"],
        ("h200", "relu"): ["default"],
    }


def test_override_cannot_choose_a_held_out_workload(plan):
    of = problem(workloads=(Workload(name="default"), Workload(name="secret", held_out=True)))
    rule = Override(match=Match(gpu=("cpu",)), workloads=("secret",))
    cells = list(plan(selected(of), overrides=(rule,)).cells())
    assert {workload.name for cell in cells for workload in cell.workloads} == {"default"}
    without = plan(selected(problem(workloads=of.shown_workloads)), overrides=(rule,))
    assert cells[0].expected_s > next(iter(without.cells())).expected_s


def test_a_dtype_must_be_offered_by_problem_and_candidate(plan):
    by_problem = plan(selected(problem(dtypes=(Dtype.FP32,))), gpus=(H200,))
    by_candidate = plan(selected(problem(), candidate(dtypes=(Dtype.FP32, Dtype.FP16))), gpus=(H200,))
    assert [cell.reason and cell.reason.text for cell in by_problem.cells()] == [
        None,
        "the problem does not offer bf16, only fp32",
    ]
    reasons = [cell.reason for cell in by_candidate.cells()]
    assert (reasons[0], reasons[1].kind) == (None, SkipReason.DTYPE_NOT_OFFERED)
    assert reasons[1].text == "the candidate does not offer bf16, only fp32, fp16"


def test_reasons_of_every_host_come_before_those_of_this_host(plan, facts):
    bare = replace(facts, gpus=(CPU_DEVICE,))
    cells = plan(selected(problem(dtypes=(Dtype.FP32,))), gpus=(H200,), facts=bare).cells()
    assert [cell.reason.kind for cell in cells] == [SkipReason.NO_SUCH_GPU, SkipReason.DTYPE_NOT_OFFERED]


def test_an_axis_value_that_is_several_kinds_of_device_is_told(plan, facts):
    older = replace(H200_DEVICE, uuid="GPU-2", name="NVIDIA H200 old", compute_capability="6.1")
    loose = replace(H200, compute_capability=None)
    found = plan(gpus=(CPU, loose), facts=replace(facts, gpus=(CPU_DEVICE, H200_DEVICE, older)))
    assert any("gpu h200 matches different devices here" in warning for warning in found.warnings)
    assert SkipReason.LANGUAGE_NOT_SUPPORTED in reasons(found.cells())  # judged by the older one


def test_unknown_versions_are_a_warning_and_no_reason(plan):
    odd = replace(CU128, name="cu128", cuda="15.0", torch="4.0.0")
    found = plan(toolchains=(CPU_TOOLCHAIN, odd), gpus=(CPU, H200), dtypes=(Dtype.FP32,))
    assert [warning.split(" is not")[0] for warning in found.warnings] == [
        "toolchain cu128: CUDA 15.0",
        "toolchain cu128: torch 4.0.0 for CUDA 15.0",
    ]
    assert reasons(found.cells()) == {None}
