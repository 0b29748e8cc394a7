"""KernelBench's results of the samples of a run."""

import pytest

from tests.results.importing.made import load, only, put


def result(**others):
    metadata = {"hardware": "NVIDIA L40S", "device": "cuda:0", "correctness_trials": "(5 / 5)"}
    usual = {"sample_id": 0, "compiled": True, "correctness": True, "metadata": metadata, "runtime": 0.5}
    stats = {"mean": 0.5, "std": 0.05, "min": 0.4, "max": 0.6, "num_trials": 100}
    return {**usual, "runtime_stats": stats, **others}


def test_a_sample_becomes_a_row(tmp_path):
    put(tmp_path / "runs" / "llama_level1" / "eval_results.json", {"7": [result(), result(sample_id=1, runtime=0.25)]})
    _report, rows = load(tmp_path)
    assert [row["candidate"] for row in rows] == ["llama_level1-0", "llama_level1-1"]
    assert [row["candidate_median_ns"] for row in rows] == [0.5e6, 0.25e6]
    row = rows[0]
    assert (row["problem"], row["level"], row["gpu"]) == ("level1/7", 1, "NVIDIA L40S")
    assert (row["origin_method"], row["origin_sample"], row["labels"]) == ("llama_level1", 0, ["mean_not_median"])
    assert (row["trials"], row["trials_passed"], row["candidate_samples"]) == (5, 5, 100)
    assert (row["spread_within"], row["baseline_median_ns"], row["speedup"]) == (pytest.approx(0.1), None, None)


@pytest.mark.parametrize(
    ("change", "status", "message"),
    [
        ({"compiled": False, "metadata": {"compilation_error": "nvcc"}}, "compile_error", "compilation_error: nvcc"),
        ({"compiled": False, "metadata": {"error": "timed out"}}, "compile_error", "error: timed out"),
        (
            {"correctness": False, "metadata": {"correctness_issue": "off"}},
            "incorrect_values",
            "correctness_issue: off",
        ),
        ({"correctness": False, "metadata": {"runtime_error": "boom"}}, "runtime_error", "runtime_error: boom"),
        ({"correctness": False, "metadata": None}, "incorrect_values", None),
    ],
)
def test_failures_are_the_candidates_and_have_no_time(tmp_path, change, status, message):
    row = only(tmp_path, put(tmp_path / "run" / "eval_results.json", {"1": [result(**change)]}))
    assert (row["status"], row["message"], row["fault"]) == (status, message, "candidate")
    assert (row["candidate_median_ns"], row["labels"]) == (None, [])


def test_correct_but_not_timed_is_passed_without_a_time(tmp_path):
    row = only(tmp_path, put(tmp_path / "run" / "eval_results.json", {"1": [result(runtime=-1, runtime_stats={})]}))
    assert (row["status"], row["candidate_median_ns"], row["labels"]) == ("passed", None, ["not_timed"])


def test_eval_reference_time_is_baseline_and_excess_is_warned(tmp_path):
    given = result(ref_runtime=1.5, metadata={"excessive_speedup": True})
    row = only(tmp_path, put(tmp_path / "run" / "eval_results.json", {"1": given}))
    assert (row["speedup"], row["warnings"]) == (3.0, ["KernelBench marked its speed-up as excessive"])
    assert row["gpu"] is None


def test_the_level_is_that_of_the_kernels_beside(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "level_3_problem_7_sample_0_kernel.py").touch()
    assert only(tmp_path, put(tmp_path / "run" / "eval_results.json", {"7": [result()]}))["problem"] == "level3/7"


def test_without_a_level_that_is_said(tmp_path):
    report, rows = load(tmp_path, put(tmp_path / "run" / "eval_results.json", {"7": {"4": result(sample_id=None)}}))
    assert (rows[0]["problem"], rows[0]["candidate"]) == ("problem7", "run-4")
    assert report.files[0].notes == ("neither the file nor its folder names the level of the problems",)


def test_one_result_per_file_is_named_after_its_file(tmp_path):
    given = result()
    del given["sample_id"]
    put(tmp_path / "run" / "level_2_problem_9_sample_3_eval.json", given)
    put(tmp_path / "run" / "lost.json", given)
    report, rows = load(tmp_path)
    assert [(row["problem"], row["candidate"]) for row in rows] == [("level2/9", "run-3")]
    assert "does not name its problem" in report.refused[0].reason


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (result(compiled="yes"), "compiled: must be true or false; got a string"),
        (result(runtime=float("nan")), "runtime: must be a finite number; got nan"),
        (result(runtime=-3), "runtime: must not be negative; got -3"),
        (result(metadata=[]), "metadata: must be an object; got a list"),
        (5, "must be an object; got a number"),
    ],
)
def test_a_bad_result_is_refused_and_the_next_is_read(tmp_path, bad, reason):
    report, rows = load(tmp_path, put(tmp_path / "run" / "eval_results.json", {"1": [bad, result(sample_id=1)]}))
    assert [row["candidate"] for row in rows] == ["run-1"]
    assert report.refused[0].reason.endswith(reason)
    assert report.refused[0].line > 1
