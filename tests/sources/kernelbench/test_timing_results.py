"""KernelBench's baseline tables."""

import json

import pytest

from tests.results.importing.made import load, only, put, timing


def test_a_time_becomes_a_row_with_all_that_is_known_and_no_more(tmp_path):
    path = put(tmp_path / "L4_modal" / "baseline_time_torch.json", {"level2": {"3_Gemm.py": timing()}})
    row = only(tmp_path, path)
    assert (row["problem"], row["candidate"], row["level"], row["gpu"]) == ("level2/3_Gemm", "torch", 2, "L4_modal")
    assert (row["gpu_name"], row["candidate_median_ns"], row["candidate_samples"]) == ("NVIDIA L4", 1.5e6, 100)
    assert row["spread_within"] == pytest.approx(0.1)
    assert (row["status"], row["session_status"], row["fault"], row["stage"]) == ("passed", "passed", "none", "done")
    assert (row["matrix"], row["source"], row["labels"]) == (
        "kernelbench-timing",
        "kernelbench-timing",
        ["mean_not_median"],
    )
    assert row["run_id"].startswith("import:kernelbench-timing:")
    lacking = ("toolchain", "dtype", "torch", "driver", "gpu_uuid", "clock_state", "started_at", "baseline_median_ns")
    assert {row[name] for name in lacking} == {None}


def test_the_baseline_is_eager_on_the_same_machine_and_hardware(tmp_path):
    others = {"3_C.py": timing(6), "4_D.py": timing(8)}
    eager = {"1_A.py": timing(3), "2_B.py": timing(4, hardware="NVIDIA A10"), **others}
    compiled = {"1_A.py": timing(1.5), "2_B.py": timing(2), "3_C.py": timing(0), "4_D.py": None, "5_E.py": timing()}
    put(tmp_path / "A100_one" / "baseline_time_torch.json", {"level1": eager})
    put(tmp_path / "A100_one" / "baseline_time_torch_compile_cudagraphs.json", {"level1": compiled})
    put(tmp_path / "A100_two" / "baseline_time_torch_compile_cudagraphs.json", {"level1": {"1_A.py": timing(1)}})
    report, rows = load(tmp_path)
    found = {(r["gpu"], r["problem"]): r for r in rows if r["candidate"] == "torch_compile_cudagraphs"}
    assert found["A100_one", "level1/1_A"]["speedup"] == 2.0
    assert found["A100_one", "level1/1_A"]["baseline_samples"] == 100
    for alone in (("A100_one", "level1/2_B"), ("A100_one", "level1/5_E"), ("A100_two", "level1/1_A")):
        assert (found[alone]["baseline_median_ns"], found[alone]["speedup"]) == (None, None)
    assert (found["A100_one", "level1/3_C"]["candidate_median_ns"], found["A100_one", "level1/3_C"]["speedup"]) == (
        0.0,
        None,
    )
    notes = {file.path.parent.name: file.notes for file in report.files if "compile" in file.path.name}
    assert "2 of 4 times have no baseline" in notes["A100_one"][-1]
    assert "1 of 1 times have no baseline" in notes["A100_two"][-1]
    assert all(r["speedup"] is None for r in rows if r["candidate"] == "torch")


def test_problem_without_time_is_infra_row(tmp_path):
    path = put(tmp_path / "L4" / "baseline_time_torch.json", {"level3": {"34_X.py": None, "1_A.py": timing()}})
    report, rows = load(tmp_path, path)
    row = next(row for row in rows if row["problem"] == "level3/34_X")
    assert (row["status"], row["fault"], row["candidate_median_ns"]) == ("infra_error", "infra", None)
    assert report.files[0].notes == ("1 problems have neither a time nor a reason: infra_error",)


def test_versions_of_the_problem_set_never_meet(tmp_path):
    shared = {"1_Square.py": timing()}
    put(tmp_path / "a" / "H100" / "baseline_time_torch.json", {"level3": {**shared, "36_LTSMHn.py": timing()}})
    put(tmp_path / "b" / "H100" / "baseline_time_torch.json", {"level3": {**shared, "36_LSTMHn.py": timing()}})
    put(tmp_path / "v7.2" / "H100" / "baseline_time_torch.json", {"level3": shared})
    put(tmp_path / "d" / "H100" / "baseline_time_torch.json", {"level3": shared})
    report, rows = load(tmp_path, name="mine")
    rows = [row for row in rows if row["problem"] == "level3/1_Square"]
    assert {row["matrix"] for row in rows} == {"mine-v0", "mine-v0.1", "mine-v7.2", "mine"}
    assert len({row["problem_sha256"] for row in rows}) == len({row["cell_id"] for row in rows}) == 4
    assert report.contested == 0


def test_a_name_that_says_the_version_is_kept(tmp_path):
    put(tmp_path / "H100" / "baseline_time_torch.json", {"level3": {"36_LSTMHn.py": timing()}})
    assert only(tmp_path, name="kernelbench-v0.1")["matrix"] == "kernelbench-v0.1"


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        (timing(float("nan")), "mean: must be a finite number; got nan"),
        (timing(float("inf")), "mean: must be a finite number; got inf"),
        (timing(-0.5), "mean: must not be negative; got -0.5"),
        (timing("1.5"), "mean: must be a number; got a string"),
        (timing(1e308), "mean: is too large a number: 1e+308"),
        (timing(num_trials=1.5), "num_trials: must be a whole number of at most 2147483647; got 1.5"),
        (timing(hardware=3), "hardware: must be a string; got a number"),
        ({"std": 1}, "lacks 'mean'"),
        (7, "must be an object; got a number"),
        ([], "must be an object; got a list"),
    ],
)
def test_bad_entry_is_refused_with_line_and_others_count(tmp_path, entry, reason):
    document = {"level1": {"1_A.py": timing(), "2_B.py": entry, "3_C.py": timing()}}
    path = put(tmp_path / "L4" / "baseline_time_torch.json", json.dumps(document).replace('"2_B', '\n\n"2_B'))
    report, rows = load(tmp_path, path)
    assert [row["problem"] for row in rows] == ["level1/1_A", "level1/3_C"]
    (refused,) = report.refused
    assert refused.reason.startswith("level1.2_B.py")
    assert refused.reason.endswith(reason)
    assert (refused.path, refused.line) == (path, 3)


def test_a_level_that_is_none_or_holds_no_problems(tmp_path):
    document = {"level1": {"1_A.py": timing()}, "level2": 5, "warmup": {"1_A.py": timing()}, "level3": None}
    report, rows = load(tmp_path, put(tmp_path / "L4" / "baseline_time_torch.json", document))
    assert len(rows) == 1
    assert [one.reason for one in report.refused] == [
        "level2: must be an object of problems",
        "warmup.1_A.py: 'warmup' is not a level: level1, level2, …",
        "level3: must be an object of problems",
    ]
