"""Published results and our own: their known faults are found, and there are no other errors."""

import json
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from kernel_matrix.analysis.audit import Severity, audit, chosen
from kernel_matrix.analysis.audit.boards import stands_for
from kernel_matrix.analysis.tables import open_tables
from tests.analysis.audit.planted import heard
from tests.analysis.made import cell, tables

ROOT = Path(__file__).parents[3]
GOLDEN = ROOT.parent / "shared" / "data" / "kernelbenchx-golden"
TIMING = ROOT.parent / "shared" / "data" / "kernelbench-timing"
UNKNOWN = dict.fromkeys(
    ("gpu_uuid", "host_id", "hostname", "driver", "image_id", "engine", "exclusive", "clock_state", "toolchain",
     "torch", "dtype", "candidate_sha256", "problem_sha256", "verdict", "grade", "baseline_samples"),
)  # fmt: skip


def published(gpu, board, problem, *, baseline="torch", mean_ms=1.5, trials=100):
    """A row as imported from a published time: without baseline, calls, host and driver."""
    row = cell(
        gpu=gpu, gpu_name=board, problem=problem, candidate=baseline, candidate_median_ns=mean_ms * 1e6,
        candidate_samples=trials, source="kernelbench",
    )  # fmt: skip
    return {**row, **UNKNOWN}


def errors(made):
    return {
        check.name: found.to_dicts()
        for check, found in audit(made)
        if found.height and check.severity is Severity.ERROR
    }


@pytest.mark.parametrize(
    ("name", "board", "fits"),
    [
        ("A100_modal", "NVIDIA A100-SXM4-40GB", True),
        ("A100-80GB_modal", "NVIDIA A100-SXM4-80GB", True),
        ("A100-80GB_modal", "NVIDIA A100 80GB PCIe", True),
        ("A100-80GB_modal", "NVIDIA A100-SXM4-40GB", False),
        ("A10G_modal", "NVIDIA A10", False),
        ("A10G_modal", "NVIDIA A10G", True),
        ("L40S_matx3", "NVIDIA L40S", True),
        ("L40S_matx3", "NVIDIA L40", False),
        ("H100_PCIe_LambdaLabs", "NVIDIA H100 PCIe", True),
        ("H100_PCIe_LambdaLabs", "NVIDIA H100 80GB HBM3", False),
        ("h100-80gb", "NVIDIA H100 PCIe", True),
        ("h200", "NVIDIA H200 NVL", True),
        ("h100", "NVIDIA H20", False),
        ("rtx4090", "NVIDIA GeForce RTX 4090", True),
        ("RTX 5090", "NVIDIA GeForce RTX 4090", False),
        ("T4_modal", "Tesla T4", True),
        ("rtx3080", "NVIDIA GeForce RTX 3080", True),
        ("rtx 3060 12gb", "NVIDIA GeForce RTX 3060", True),
        ("rtx 3060 12gb", "NVIDIA GeForce RTX 4070", False),
        ("rtx 4070 gddr6x", "NVIDIA GeForce RTX 4070", True),
        ("RTX PRO 6000", "NVIDIA RTX PRO 6000 Blackwell Server Edition", True),
        ("RTX PRO 6000", "NVIDIA RTX 6000 Ada Generation", False),
        ("mi300x", "AMD Instinct MI300X", True),
        ("mi300x", "AMD Instinct MI325X", False),
        ("gpu-server-3-h200", "NVIDIA H200", True),
        ("b300", "NVIDIA B300 SXM6 AC", True),
        ("nightly-box", "NVIDIA H200", None),
        ("80gb", "NVIDIA H200", None),
        ("h200", None, None),
    ],
)
def test_a_name_is_held_against_the_board(name, board, fits):
    assert stands_for(name, board) is fits


def test_folders_that_mix_boards_are_told_from_rows_alone():
    rows = [published("A100_modal", "NVIDIA A100-SXM4-40GB", f"{n}.py", mean_ms=1.1 + n) for n in range(9)]
    rows += [published("A100_modal", "NVIDIA A100-SXM4-80GB", f"{n}.py", mean_ms=1.1 + n) for n in range(9, 11)]
    rows += [published("A10G_modal", "NVIDIA A10", f"{n}.py", mean_ms=3.7 + n) for n in range(11)]
    found = errors(tables(rows))
    assert set(found) == {"two_boards", "wrong_board"}
    assert found["two_boards"][0]["evidence"] == (
        "2 boards under one name: 9 rows on NVIDIA A100-SXM4-40GB, 2 rows on NVIDIA A100-SXM4-80GB"
    )
    assert found["wrong_board"][0]["evidence"] == "11 rows were measured on NVIDIA A10; the name means NVIDIA A10G"


@pytest.fixture(scope="module")
def kernelbench():
    """The published times of nine machines, as rows."""
    if not TIMING.is_dir():
        pytest.skip(f"{TIMING} is not here")
    rows = []
    for file in sorted(TIMING.glob("*/baseline_time_*.json")):
        baseline = file.stem.removeprefix("baseline_time_")
        for problems in json.loads(file.read_text()).values():
            for problem, entry in problems.items():
                if entry is not None:
                    rows.append(
                        published(
                            file.parent.name, entry["hardware"], problem, baseline=baseline, mean_ms=entry["mean"]
                        )
                    )
    return tables(rows)


def test_published_times_folders_of_two_boards_are_found(kernelbench):
    found = errors(kernelbench)
    assert set(found) == {"two_boards", "wrong_board"}
    assert {row["gpu"] for row in found["two_boards"]} == {"A100_modal", "A10G_modal"}
    assert [(row["gpu"], row["count"]) for row in found["wrong_board"]] == [("A10G_modal", 275)]


def test_published_times_coarse_steps_and_gaps_are_found(kernelbench):
    assert all("multiples of 1000 ns" in row["evidence"] for row in heard("coarse_timer", kernelbench))
    whole = [row for row in heard("hole", kernelbench) if row["candidate"]]
    assert len(whole) == 6 * 4  # six machines have two of the six baselines
    assert {row["problem"] for row in heard("hole", kernelbench) if row["problem"]} >= {"31_VisionAttention.py"}


def test_published_times_odd_cell_of_a_gpu_is_found(kernelbench):
    found = {(row["gpu"], row["problem"].partition("_")[0]) for row in heard("odd_cell", kernelbench)}
    assert found == {
        *(("A10G_modal", "61"), ("A10G_modal", "68")),
        *(("A100_modal", "82"), ("A100_modal", "85")),
        *(("B200_together", number) for number in ("46", "47", "48", "49")),
    }


@pytest.fixture(scope="module")
def imported(tmp_path_factory):
    """The same times as tables of the import."""
    foreign = pytest.importorskip("kernel_matrix.results.importing")
    if not TIMING.is_dir():
        pytest.skip(f"{TIMING} is not here")
    folder = tmp_path_factory.mktemp("imported")
    foreign.import_results([TIMING], folder)
    return open_tables([folder])


def test_published_times_say_the_same_through_the_import(imported):
    found = errors(imported)
    assert {row["gpu"] for row in found["two_boards"]} == {"A100_modal", "A10G_modal"}
    assert {row["gpu"] for row in found["wrong_board"]} == {"A10G_modal"}
    assert set(found) == {"two_boards", "wrong_board"}

    versions = {row["gpu"]: row["count"] for row in heard("mixed_problems", imported)}
    assert versions == {"H100_Modal": 238, "H100_PCIe_LambdaLabs": 238}


def test_another_version_of_problems_is_found_without_contents(imported):
    bare = imported.cells.with_columns(problem_sha256=pl.lit(None, pl.String()))
    one = bare.filter(pl.col("gpu").is_in(["H100_Modal", "A100_modal", "L40S_modal", "L4_modal", "T4_modal"]))
    assert {row["gpu"] for row in heard("mixed_problems", replace(imported, cells=one))} == {"H100_Modal"}
    others = one.filter(pl.col("gpu") != "H100_Modal")
    assert heard("mixed_problems", replace(imported, cells=others)) == []


def test_published_rates_have_no_error(tmp_path):
    """Above the bandwidth of its memory only where the cache holds the rest."""
    foreign = pytest.importorskip("kernel_matrix.results.importing")
    if not GOLDEN.is_dir():
        pytest.skip(f"{GOLDEN} is not here")
    foreign.import_results([GOLDEN], tmp_path)
    golden = open_tables([tmp_path])
    assert golden.cells.filter(pl.col("bytes_per_s") > 2.039e12).collect().height == 2
    assert errors(golden) == {}
    assert heard("no_bound", golden) == []


def test_own_example_has_no_error_and_known_warnings(merged_example):
    found = [check for check, rows in audit(open_tables([merged_example]), chosen([])) if not rows.is_empty()]
    assert [check.name for check in found if check.severity is Severity.ERROR] == []
    said = {check.name for check in found}
    assert said <= {"accused_once", "drift", "baselines_apart", "scattered"}
