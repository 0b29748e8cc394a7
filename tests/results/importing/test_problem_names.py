"""Problems that files of one import spell differently, and the baselines that they share."""

import pytest

from kernel_matrix.analysis.questions import QuestionOptions
from kernel_matrix.analysis.scores import scores
from kernel_matrix.analysis.tables import open_tables
from tests.results.importing.made import load, put, timing

BOARD = "NVIDIA L4"


def evaluated(runtime=0.5, hardware=BOARD, **others):
    metadata = {"hardware": hardware} if hardware else {}
    return {"compiled": True, "correctness": True, "metadata": metadata, "runtime": runtime, **others}


def put_run(root, results):
    return put(root / "runs" / "mine_level1" / "eval_results.json", results)


def put_table(root, problems, folder="L4"):
    return put(root / folder / "baseline_time_torch.json", {"level1": problems})


def of_run(rows):
    return {row["candidate"]: row for row in rows if row["source"] == "kernelbench-eval"}


def test_number_takes_the_name_of_another_file(tmp_path):
    put_run(tmp_path, {"19": [evaluated()], "20": [evaluated()]})
    put_table(tmp_path, {"19_ReLU.py": timing()})
    _report, rows = load(tmp_path)
    assert sorted({row["problem"] for row in rows}) == ["level1/19_ReLU", "level1/20"]


def test_number_with_two_names_stays_apart_and_is_noted(tmp_path):
    put_run(tmp_path, {"97": [evaluated()]})
    put_table(tmp_path / "a", {"97_CosineSimilarityLoss.py": timing()})
    put_table(tmp_path / "b", {"97_ScaledDotProductAttention.py": timing()})
    report, rows = load(tmp_path)
    assert of_run(rows)["mine_level1-0"]["problem"] == "level1/97"
    (notes,) = [file.notes for file in report.files if file.format == "kernelbench-eval"]
    assert notes[0] == (
        "problems that the import has under several names stay apart:"
        " level1/97 may be level1/97_CosineSimilarityLoss or level1/97_ScaledDotProductAttention"
    )
    assert notes[1].startswith("1 times have no baseline")


def test_numbers_of_other_levels_and_longer_numbers_stay_apart(tmp_path):
    put_run(tmp_path, {"1": [evaluated()]})
    put(tmp_path / "L4" / "baseline_time_torch.json", {"level2": {"1_B.py": timing()}, "level1": {"19_A.py": timing()}})
    _report, rows = load(tmp_path)
    assert of_run(rows)["mine_level1-0"]["problem"] == "level1/1"


def test_results_and_baselines_of_kernelbench_give_fast_p(tmp_path):
    put_run(tmp_path, {"19": [evaluated(0.5), evaluated(correctness=False, sample_id=1)], "23": [evaluated(3.0)]})
    put_table(tmp_path, {"19_ReLU.py": timing(1.0), "23_Softmax.py": timing(2.0)}, folder="old")
    _report, rows = load(tmp_path)
    assert [row["speedup"] for row in rows if row["speedup"]] == [2.0, pytest.approx(2 / 3)]
    answer = scores(open_tables([tmp_path / "tables"]), QuestionOptions(by=("method",), thresholds=(0, 1)))[0]
    (row,) = [row for row in answer.table.to_dicts() if row["method"] == "mine_level1"]
    assert (row["fast_0"], row["fast_1"], row["problems"]) == (pytest.approx(2 / 3), pytest.approx(1 / 3), 2)


@pytest.mark.parametrize("hardware", ["NVIDIA H100", None])
def test_baseline_needs_the_same_hardware(tmp_path, hardware):
    put_run(tmp_path, {"19": [evaluated(hardware=hardware)]})
    put_table(tmp_path, {"19_ReLU.py": timing()})
    report, rows = load(tmp_path)
    assert of_run(rows)["mine_level1-0"]["baseline_median_ns"] is None
    (notes,) = [file.notes for file in report.files if file.format == "kernelbench-eval"]
    assert notes == ("1 times have no baseline: no baseline table has the problem on the same hardware",)


def test_stated_gpu_stands_for_hardware_that_is_not_said(tmp_path):
    put_run(tmp_path, {"19": [evaluated(hardware=None)]})
    put_table(tmp_path, {"19_ReLU.py": timing(2.0)}, folder="old")
    _report, rows = load(tmp_path, gpu="l4")
    assert (of_run(rows)["mine_level1-0"]["speedup"], {row["gpu"] for row in rows}) == (4.0, {"l4"})


def test_baselines_that_differ_are_not_chosen_from(tmp_path):
    put_run(tmp_path, {"19": [evaluated()]})
    for folder, mean in (("L4_a", 1.0), ("L4_b", 2.0)):
        put_table(tmp_path, {"19_ReLU.py": timing(mean)}, folder=folder)
    report, rows = load(tmp_path)
    assert of_run(rows)["mine_level1-0"]["speedup"] is None
    (notes,) = [file.notes for file in report.files if file.format == "kernelbench-eval"]
    assert notes == ("1 times have no baseline: several baseline tables differ; import one of them only",)


def test_reference_time_of_a_result_counts_before_a_table(tmp_path):
    put_run(tmp_path, {"19": [evaluated(ref_runtime=5.0)]})
    put_table(tmp_path, {"19_ReLU.py": timing(2.0)})
    _report, rows = load(tmp_path)
    assert of_run(rows)["mine_level1-0"]["speedup"] == 10.0


def test_failures_and_compiled_times_give_no_baseline(tmp_path):
    put_run(tmp_path, {"19": [evaluated(runtime=-1), evaluated(sample_id=1)]})
    put_table(tmp_path, {"19_ReLU.py": None})
    put(tmp_path / "L4" / "baseline_time_torch_compile.json", {"level1": {"19_ReLU.py": timing()}})
    _report, rows = load(tmp_path)
    assert {row["baseline_median_ns"] for row in rows} == {None}
