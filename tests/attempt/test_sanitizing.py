"""A candidate under compute-sanitizer: the tool's output, and the cell's outcome on a simulated GPU."""

from __future__ import annotations

import pytest
from sim.nvml import H200

from kernel_matrix.attempt.sanitizing import sanitizer_outcome, was_sanitized
from kernel_matrix.model.enums import Fault, Stage, Status
from kernel_matrix.platforms import Gpu
from tests.attempt.gpu_stage import on_driver

GPU = Gpu(platform="cuda", uuid=H200["uuid"], name="H200")

BANNER = "========= COMPUTE-SANITIZER\n"
INVALID = "========= Invalid __global__ write of size 4 bytes\n=========     at own_kernel(float *)+0x70\n"
HAZARD = "========= Error: Race reported between Write access at own_kernel and Read access at own_kernel\n"
FOUND = f"{BANNER}hello\n{INVALID}========= ERROR SUMMARY: 3 errors\n"
RACES = f"{BANNER}{HAZARD}========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)\n"
CLEAN = f"{BANNER}hello\n========= ERROR SUMMARY: 0 errors\n"
NO_RACES = f"{BANNER}========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\n"


@pytest.mark.parametrize(
    ("tool", "log", "status", "words"),
    [
        ("memcheck", FOUND, Status.OUT_OF_BOUNDS, "Invalid __global__ write of size 4 bytes"),
        ("racecheck", RACES, Status.RUNTIME_ERROR, "Race reported"),
        ("initcheck", FOUND, Status.RUNTIME_ERROR, "Invalid"),
        ("memcheck", "========= ERROR SUMMARY: 3 errors", Status.OUT_OF_BOUNDS, "3 errors"),
        ("memcheck", "========= ERROR SUMMARY: 0 errors\n" + FOUND, Status.OUT_OF_BOUNDS, "Invalid"),
    ],
)
def test_what_a_tool_found_is_the_candidates_fault(tool, log, status, words):
    outcome = sanitizer_outcome(GPU, tool, log)
    assert (outcome.status, outcome.stage, outcome.fault) == (status, Stage.VERIFY, Fault.CANDIDATE)
    assert words in outcome.evidence.message
    assert tool in outcome.evidence.message
    assert outcome.evidence.log == log


@pytest.mark.parametrize("log", [CLEAN, NO_RACES])
def test_a_clean_summary_is_no_finding(log):
    assert sanitizer_outcome(GPU, "memcheck", log) is None
    assert was_sanitized(GPU, "memcheck", log)


@pytest.mark.parametrize("log", ["", BANNER, BANNER + INVALID, "ERROR SUMMARY: 1 error"])
def test_without_a_summary_nothing_was_checked(log):
    assert sanitizer_outcome(GPU, "memcheck", log) is None
    assert not was_sanitized(GPU, "memcheck", log)


# ---- The session that is checked


@pytest.fixture
def checked(driver, tmp_path):
    """Runs a cell under two tools; its candidate prints ``log`` and ``judge`` is its judge's script under a tool."""
    driver.set(H200)

    def performed(log, judge="says(Status.PASSED)"):
        program = f"""
from dataclasses import replace
made = cell(stage, times(), {judge}, sanitize=("memcheck", "synccheck"))
seen = []
def prints(spec):
    seen.append([spec.module, list(spec.args[:3])])
    return ProcessExit(role=spec.role, code=0, log_tail={log!r} if "--tool" in spec.args else "")
stage.plays["candidate", made.id] = [prints]
ran = attempt(stage, made)
sys.stdout.write(json.dumps([record_to_json(ran.record), seen]))
"""
        return on_driver(driver, tmp_path, program)

    return performed


def test_each_sanitizer_gets_a_session_after_the_timed_ones(checked):
    record, seen = checked(CLEAN)
    assert record["outcome"]["status"] == "passed"
    assert ["no_sanitizer" in session["labels"] for session in record["sessions"]] == [False] * 3
    assert [module for module, _ in seen] == [
        "kernel_matrix.inside.worker.worker",
        *["kernel_matrix.platforms.cuda.inside.sanitized"] * 2,
    ]
    assert [args for _, args in seen[1:]] == [["--tool", tool, "--"] for tool in ("memcheck", "synccheck")]


def test_the_first_finding_ends_the_cell(checked):
    record, seen = checked(FOUND)
    assert record["outcome"]["status"] == "out_of_bounds"
    assert len(seen) == 2


@pytest.mark.parametrize("judge", ["says(Status.PASSED)", "says(Status.TIMEOUT)", "says(Status.OUT_OF_MEMORY)"])
def test_sanitizer_missing_or_too_slow_gives_only_a_label(judge, checked):
    record, _ = checked("hello", judge)
    assert record["outcome"]["status"] == "passed"
    assert ["no_sanitizer" in session["labels"] for session in record["sessions"]] == [False, True, True]


def test_a_candidate_that_is_wrong_while_it_is_watched_is_wrong(checked):
    record, _ = checked("hello", "says(Status.INCORRECT_VALUES)")
    assert record["outcome"]["status"] == "incorrect_values"
