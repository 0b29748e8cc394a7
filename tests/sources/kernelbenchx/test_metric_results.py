"""KernelBench-X: golden results, metrics and summaries."""

import json

import pytest

from tests.results.importing.made import load, only, put

ROW = {"input_size": [[64, 32], [], 0.5, None, [[8], [8]]], "ms": 0.25, "GB/s": 2.0, "TFLOPS": 0.5}
TASK = {"call_ok": True, "exe_ok": True, "perf_ok": True, "dtype": "float16", "performance": [ROW], "error": "N/A"}


def test_a_golden_row_is_a_workload_of_eager(tmp_path):
    row = only(tmp_path, put(tmp_path / "h20" / "softmax.json", [ROW]))
    assert (row["problem"], row["candidate"], row["gpu"], row["gpu_name"]) == ("softmax", "torch", "h20", None)
    assert (row["workload"], row["labels"]) == ("64x32,scalar,0.5,null,(8,8)", [])
    assert (row["candidate_median_ns"], row["bytes_per_s"], row["flops_per_s"]) == (0.25e6, 2e9, 0.5e12)
    assert json.loads(row["values_json"]) == {"input_size": ROW["input_size"]}


def test_rows_that_are_described_alike_stay_apart(tmp_path):
    long = {**ROW, "input_size": [[n] for n in range(200)]}
    longer = {**ROW, "input_size": [[n] for n in range(201)]}
    _report, rows = load(tmp_path, put(tmp_path / "h20" / "a.json", [ROW, ROW, long, longer]))
    names = [row["workload"] for row in rows]
    assert names[1] == f"{names[0]}#2"
    assert (len(set(names)), len({row["record"] for row in rows})) == (4, 1)
    assert max(map(len, names)) < 140


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ({**ROW, "ms": -1}, "1.ms: must not be negative; got -1"),
        ({**ROW, "GB/s": "fast"}, "1.GB/s: must be a number; got a string"),
        ({"ms": 1}, "1: lacks 'input_size'"),
        (3, "1: must be an object; got a number"),
    ],
)
def test_a_bad_row_is_refused(tmp_path, bad, reason):
    report, rows = load(tmp_path, put(tmp_path / "h20" / "a.json", [ROW, bad]))
    assert (len(rows), [one.reason for one in report.refused]) == (1, [reason])


def test_metrics_of_a_method(tmp_path):
    tasks = {
        "Reduce/good.py": TASK,
        "Fusion/unbuilt.py": {**TASK, "call_ok": False, "error": "SyntaxError", "performance": []},
        "Fusion/wrong.py": {**TASK, "exe_ok": False, "performance": []},
        "Math/untimed.py": {**TASK, "perf_ok": False, "performance": "N/A"},
    }
    put(tmp_path / "out" / "metrics.json", tasks)
    put(tmp_path / "out" / "summary.json", {"method": "geak", "total": 4, "avg_speedup_global": 1.2})
    report, rows = load(tmp_path)
    said = {
        r["problem"]: (r["status"], r["category"], r["message"], r["candidate_median_ns"], r["labels"]) for r in rows
    }
    assert said == {
        "Reduce/good": ("passed", "Reduce", None, 0.25e6, []),
        "Fusion/unbuilt": ("compile_error", "Fusion", "SyntaxError", None, []),
        "Fusion/wrong": ("incorrect_values", "Fusion", None, None, []),
        "Math/untimed": ("passed", "Math", None, None, ["not_timed"]),
    }
    assert {(row["candidate"], row["origin_method"], row["dtype"]) for row in rows} == {("geak", "geak", "fp16")}
    assert {row["speedup"] for row in rows} == {None}
    summary = next(file for file in report.files if file.format == "kernelbenchx-summary")
    assert summary.notes[0].startswith("a summary of geak over 4 tasks")


def test_a_bad_task_is_refused_and_the_others_count(tmp_path):
    tasks = {"A/x.py": {**TASK, "call_ok": "N/A"}, "A/y.py": TASK, "A/z.py": {**TASK, "performance": 5}}
    report, rows = load(tmp_path, put(tmp_path / "out" / "metrics.json", tasks))
    assert [row["problem"] for row in rows] == ["A/y"]
    assert [one.reason for one in report.refused] == [
        "A/x.py.call_ok: must be true or false; got a string",
        "A/z.py.performance: must be a list; got a number",
    ]
