"""What was built for each kind of GPU."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kernel_matrix.analysis.questions import QuestionOptions, ask
from kernel_matrix.analysis.tables import Tables
from tests.analysis.made import cell, failed, frame, tables

KERNEL = {
    "origin": "built", "compute_capability": "9.0", "registers": 40, "spill_store_bytes": 0, "spill_load_bytes": 0,
    "shared_bytes": 1024, "matrix_instructions": ["wgmma"], "occupancy": 0.5, "launchable": True, "reason": "",
}  # fmt: skip


def built(gpu: str, *kernels: dict[str, Any], **columns: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A cell that was only compiled, and its kernels."""
    facts = {"status": "compiled", "stage": "build", "workload": None, "verdict": None, **columns}
    return cell(gpu=gpu, **facts), [{**KERNEL, **kernel} for kernel in kernels]


def not_built(gpu: str, **columns: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    facts = {"status": "compile_error", "stage": "build", "message": "no such name", "workload": None, **columns}
    return failed(gpu=gpu, **facts), []


def made(*cells: tuple[dict[str, Any], list[dict[str, Any]]]) -> Tables:
    """Tables of the cells with their kernels."""
    kernels = [{**kernel, "record": number} for number, (_, each) in enumerate(cells) for kernel in each]
    return replace(tables(row for row, _ in cells), kernels=frame("kernels", kernels).lazy())


def answers(*cells: tuple[dict[str, Any], list[dict[str, Any]]], by: tuple[str, ...] = ()) -> dict[str, Any]:
    return {answer.name: answer for answer in ask("builds", made(*cells), QuestionOptions(by=by))}


def test_each_build_shows_the_scarcest_of_its_kernels():
    cells = (built("h200", KERNEL, {**KERNEL, "registers": 90, "occupancy": 0.25, "matrix_instructions": ["mma"]}),)
    (row,) = answers(*cells)["kernels"].table.to_dicts()
    assert (row["kernels"], row["registers"], row["occupancy"]) == (2, 90, 0.25)
    assert (row["instructions"], row["compute_capability"], row["refused"]) == ("mma wgmma", "9.0", 0)


def test_a_cell_that_could_not_be_built_has_its_reason():
    (row,) = answers(not_built("t4"))["kernels"].table.to_dicts()
    assert (row["status"], row["kernels"], row["reason"]) == ("compile_error", 0, "no such name")


def test_builds_are_counted_per_gpu():
    refused = {**KERNEL, "launchable": False, "reason": "too much", "spill_store_bytes": 8}
    found = answers(built("h200", KERNEL), built("t4", refused), not_built("mi300x"))["builds"]
    rows = {row.pop("gpu"): row for row in found.table.to_dicts()}
    assert {gpu: (row["built"], row["launchable"], row["spilling"]) for gpu, row in rows.items()} == {
        "h200": (1, 1, 0), "t4": (1, 0, 1), "mi300x": (0, 0, 0),
    }  # fmt: skip
    assert found.statements == [
        "0 of 1 candidates, each in a dtype and toolchain, build and fit on all 3 kinds of GPU."
    ]


def test_a_candidate_that_fits_everywhere_is_counted():
    found = answers(built("h200", KERNEL), built("t4", KERNEL))["builds"]
    assert found.statements[0].startswith("1 of 1 candidates")


def test_unknown_assembly_is_not_the_same_as_no_instructions():
    none, unknown = ({**KERNEL, "matrix_instructions": value} for value in ([], None))
    rows = answers(built("h200", none), built("t4", unknown))["kernels"].table.to_dicts()
    assert {row["gpu"]: row["instructions"] for row in rows} == {"h200": "", "t4": None}


def test_failures_behind_the_build_are_left_out():
    assert answers((failed(stage="verify"), []))["kernels"].table.is_empty()


@pytest.mark.parametrize("by", [("language",), ("gpu", "kind")])
def test_slices_are_columns(by: tuple[str, ...]):
    assert answers(built("h200", KERNEL), by=by)["builds"].table.columns[: len(by)] == list(by)
