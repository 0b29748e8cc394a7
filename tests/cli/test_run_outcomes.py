"""The end of a run: what came as candidates declare, and what did not."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from kernel_matrix.api.plan import SkipReason
from kernel_matrix.api.run_cells import RunResult
from kernel_matrix.cli import global_options
from kernel_matrix.cli.global_options import Verbosity
from kernel_matrix.cli.progress import PlainLines, skipped_lines
from kernel_matrix.cli.run_outcomes import RunOutcomes, is_as_expected
from kernel_matrix.executors.local import EventKind, RunEvent
from kernel_matrix.model.enums import Status
from tests.results.factory import CELL_KEY, failed_record, make_record


def declared(status, ended=Status.COMPILE_ERROR):
    return failed_record(status=ended, cell=replace(CELL_KEY, expect=status))


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (make_record(), True),
        (make_record(cell=replace(CELL_KEY, expect=Status.PASSED)), True),
        (make_record(cell=replace(CELL_KEY, expect=Status.TIMEOUT)), False),
        (declared(Status.COMPILE_ERROR), True),
        (declared(Status.TIMEOUT), False),
        (declared(Status.PASSED), False),
        (declared(None), False),
        (declared(Status.TIMEOUT, Status.COMPILED), True),
    ],
)
def test_ends_are_compared_with_what_is_declared(record, expected):
    assert is_as_expected(record) is expected


def result(**counts):
    found = Counter({Status(name): number for name, number in counts.items()})
    return RunResult(run_id="r", folder=Path("results/x"), planned=9, left=0, counts=found, quarantined={})


def test_summary_separates_expected_from_unexpected():
    outcomes = RunOutcomes()
    assert list(outcomes.lines(result())) == []
    for _ in range(2):
        outcomes.note("p/right", make_record())
    outcomes.note("p/wrong", declared(Status.COMPILE_ERROR))
    ended = result(passed=2, compile_error=1)
    assert list(outcomes.lines(ended)) == ["3 cells ended: 2 passed, 1 compile_error", "all as expected"]
    assert str(outcomes) == "1 failed as expected"
    outcomes.note("p/broken", declared(None))
    assert list(outcomes.lines(ended))[1] == "3 as expected, 1 not: p/broken (compile_error)"
    assert str(outcomes) == "1 failed as expected, 1 not as expected"


def test_summary_names_some_of_many_unexpected_ends():
    outcomes = RunOutcomes()
    for number in range(7):
        outcomes.note(f"p/{number}", declared(None))
    assert list(outcomes.lines(result(compile_error=7)))[1].endswith("p/4 (compile_error), and 2 more")


# ---- What does not run, and how much is said


def skipped(kind, text, gpu="h100"):
    return SimpleNamespace(reason=SimpleNamespace(kind=kind, text=text), gpu=SimpleNamespace(name=gpu))


SKIPPED = [
    *(skipped(SkipReason.NO_SUCH_GPU, f"no {gpu}", gpu) for gpu in ("a100", "b200", "l4", "t4", "v100") for _ in "12"),
    *(skipped(SkipReason.EXCLUDED, "excluded") for _ in "123"),
    skipped(SkipReason.NO_SANDBOX, "no daemon"),
]


@pytest.fixture
def level(monkeypatch):
    def of(chosen):
        monkeypatch.setattr(global_options, "_chosen", chosen)

    return of


def test_reasons_for_skipped_cells_are_two_lines(level):
    assert list(skipped_lines(SKIPPED)) == [
        "10 cells need GPUs that are not here (a100, b200, l4, t4, …); kernel-matrix plan lists them",
        "4 cells cannot run here, most often: excluded; kernel-matrix plan lists them",
    ]
    assert list(skipped_lines(())) == []
    level(Verbosity.VERBOSE)
    assert len(list(skipped_lines(SKIPPED))) == 7


def test_quiet_run_says_warnings_and_the_summary_only(level):
    said, complained = [], []
    cell = SimpleNamespace(
        problem=SimpleNamespace(ranks=1),
        candidate=SimpleNamespace(id="p/a"),
        dtype=SimpleNamespace(value="fp32"),
        gpu=SimpleNamespace(name="h200"),
        toolchain=SimpleNamespace(name="cu130"),
        expected_s=1.0,
    )
    level(Verbosity.QUIET)
    view = PlainLines(said.append, complained.append)
    view.tell(RunEvent(happening=EventKind.CELL_ENDED, cell=cell, record=failed_record()))
    view.tell(RunEvent(happening=EventKind.GPU_QUARANTINED, cell=cell, lane="GPU-1", text="lost"))
    assert (said, len(complained)) == ([], 1)
    view.tell(result(compile_error=1))
    assert said[:2] == ["1 cell ended: 1 compile_error", "0 as expected, 1 not: p/a fp32 h200/cu130 (compile_error)"]
