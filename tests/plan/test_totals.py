from __future__ import annotations

from dataclasses import replace

import pytest
from plan.nouns import CPU_DEVICE, candidate, problem, selected

from kernel_matrix.matrix import Protocol
from kernel_matrix.model.enums import Dtype, Implementation, Language, Regime
from kernel_matrix.model.messages import ProtocolSpec
from kernel_matrix.plan import SkipReason, expected_seconds, tally


@pytest.fixture
def totals(plan, facts):
    items = (
        selected(problem(), candidate("softmax/a"), candidate("softmax/b", language=Language.TORCH)),
        selected(problem("relu", category="activation", dtypes=(Dtype.FP32,)), candidate("relu/a")),
    )
    return tally(plan(*items, facts=replace(facts, gpus=(CPU_DEVICE,))).cells())


def test_all_cells_are_counted(totals):
    # On the CPU: three in fp32, softmax/b in bf16. Not: softmax/a in bf16 (interpreter), relu in bf16, all on the H200.
    assert (totals.all.cells, totals.all.runnable) == (12, 4)
    assert totals.all.skipped == {
        SkipReason.DTYPE_NOT_SUPPORTED: 1,
        SkipReason.DTYPE_NOT_OFFERED: 2,
        SkipReason.NO_SUCH_GPU: 5,
    }


@pytest.mark.parametrize(
    ("axis", "counts"),
    [
        ("gpu", {"cpu": (6, 4), "h200": (6, 0)}),
        ("toolchain", {"cpu": (6, 4), "cu128": (6, 0)}),
        ("dtype", {"fp32": (6, 3), "bf16": (6, 1)}),
        ("language", {"triton": (8, 2), "torch": (4, 2)}),
        ("category", {"reduction": (8, 3), "activation": (4, 1)}),
    ],
)
def test_each_axis_adds_up(totals, axis, counts):
    assert {value: (tally.cells, tally.runnable) for value, tally in totals.axes[axis].items()} == counts
    assert sum(tally.cells for tally in totals.axes[axis].values()) == totals.all.cells
    assert sum(tally.expected_s for tally in totals.axes[axis].values()) == pytest.approx(totals.all.expected_s)


def test_reasons_are_counted_most_frequent_first(totals):
    assert [(reason.kind, count) for reason, count in totals.reasons.items()] == [
        (SkipReason.NO_SUCH_GPU, 5),
        (SkipReason.DTYPE_NOT_OFFERED, 2),
        (SkipReason.DTYPE_NOT_SUPPORTED, 1),
    ]


def test_expected_time_is_that_of_runnable_cells(plan):
    alike = selected(problem(), candidate("softmax/a"), candidate("softmax/b"), candidate("softmax/c"))
    cells = list(plan(alike).cells())
    assert tally(cells).all.expected_s == pytest.approx(sum(c.expected_s for c in cells if c.reason is None))


def test_expected_time_is_that_on_all_units(plan):
    cell = next(cell for cell in plan(selected(problem(), candidate("softmax/a"))).cells() if cell.reason is None)
    on_three = replace(cell, gpu=replace(cell.gpu, units=3))
    assert tally([on_three]).all.expected_s == pytest.approx(3 * cell.expected_s)


@pytest.mark.parametrize(
    ("protocol", "workloads", "platform", "language", "seconds"),
    [
        # start 1.5 + 2 rounds × 5 trials × 3 modes × 0.03 + 2 contestants × 400 samples × 0.0025, within the budget
        (Protocol(), 1, "cuda", Language.TORCH, 4.4),
        (Protocol(), 2, "cuda", Language.TORCH, 7.3),
        (Protocol(sessions=5), 1, "cuda", Language.TORCH, 22.0),
        # some of those that may be added to the fewest will be
        (Protocol(sessions=5, max_sessions=10), 1, "cuda", Language.TORCH, 33.0),
        (Protocol(), 1, "cuda", Language.CUDA, 14.4),
        (Protocol(), 1, "cuda", Language.TRITON, 5.4),
        (Protocol(), 1, "cuda", Language.TILELANG, 14.4),
        (Protocol(), 1, "cpu", Language.TORCH, 12.5),
        (Protocol(spec=ProtocolSpec(time=False)), 1, "cuda", Language.TORCH, 1.95),
        # a budget that the samples would not fit into is what counts
        (Protocol(spec=ProtocolSpec(budget_s=1.0)), 1, "cuda", Language.TORCH, 3.4),
        # each further baseline is timed like the first, and compiles before
        (
            Protocol(spec=ProtocolSpec(baselines=(Implementation.EAGER, Implementation.COMPILE))),
            1,
            "cuda",
            Language.TORCH,
            20.4,
        ),
        # four blocks of each further regime
        (Protocol(spec=ProtocolSpec(regimes=(Regime.COLD, Regime.SUSTAINED))), 1, "cuda", Language.TORCH, 14.4),
    ],
)
def test_the_model_of_time(protocol, workloads, platform, language, seconds):
    found = expected_seconds(protocol, workloads=workloads, platform=platform, language=language)
    assert found == pytest.approx(seconds)


@pytest.mark.parametrize("language", Language)
def test_every_language_has_a_time(language):
    assert expected_seconds(Protocol(), workloads=1, platform="cuda", language=language) >= 4.4


def test_each_sanitizer_adds_a_slow_session_on_a_gpu_only():
    def found(platform, sanitizers):
        cell = {"workloads": 1, "platform": platform, "language": Language.TORCH}
        return expected_seconds(Protocol(), **cell, sanitizers=sanitizers)

    assert found("cuda", 2) == pytest.approx(found("cuda", 0) + 2 * (1.5 + 10 * 0.9))
    assert found("cpu", 2) == found("cpu", 0)
