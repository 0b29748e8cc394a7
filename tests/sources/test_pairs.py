"""Pairs of results before and after a change."""

import pytest

from kernel_matrix.errors import NothingSelectedError
from tests.results.importing.made import load, put

RUN = {"compiled": True, "correctness": True, "metadata": {"hardware": "NVIDIA L4"}, "runtime": 2.0}
TASK = {"call_ok": True, "exe_ok": True, "dtype": "float16", "performance": [{"input_size": [[64]], "ms": 2.0}]}
FASTER = {**TASK, "performance": [{"input_size": [[64]], "ms": 0.5}]}
PAIR = {"before": {"mean_ms": 2.0}, "after": {"mean_ms": 0.5}}


def said(rows):
    return {(row["problem"], row["candidate"]): (row["candidate_median_ns"], row["speedup"]) for row in rows}


BOTH = {("softmax", "before"): (2e6, None), ("softmax", "after"): (0.5e6, 4.0)}


@pytest.mark.parametrize(
    ("name", "document"),
    [
        ("softmax.json", PAIR),
        ("a.json", {"softmax": PAIR}),
        ("a.json", [{"problem": "softmax.py", **PAIR}]),
        ("a.jsonl", [{"task": "softmax", **PAIR}]),
        ("a.json", {"before": {"softmax": PAIR["before"]}, "after": {"softmax": PAIR["after"]}}),
        ("a.json", {"softmax": {"before": 2000, "after": 500, "unit": "us"}}),
        ("softmax.json", {"before": TASK, "after": FASTER}),
        ("softmax.jsonl", [{"name": "softmax", "before": TASK, "after": FASTER}]),
        ("softmax.json", {"before": RUN, "after": {**RUN, "runtime": 0.5}}),
    ],
)
def test_both_sides_are_candidates_of_one_problem(tmp_path, name, document):
    report, rows = load(tmp_path, put(tmp_path / "x" / name, document))
    assert said(rows) == BOTH
    assert report.files[0].format == "pairs"
    assert report.files[0].notes == ("1 pairs: candidates before and after; the former is the latter's baseline",)


def test_workloads_of_a_pair_are_compared_one_by_one(tmp_path):
    sizes = [{"input_size": [[64]], "ms": 4.0}, {"input_size": [[128]], "ms": 3.0}]
    pair = {"before": {**TASK, "performance": sizes}, "after": {**TASK, "performance": sizes[1:]}}
    _report, rows = load(tmp_path, put(tmp_path / "a.json", {"Math/a.py": pair}))
    assert {(row["problem"], row["category"], row["dtype"]) for row in rows} == {("Math/a", "Math", "fp16")}
    assert {row["workload"]: row["speedup"] for row in rows if row["candidate"] == "after"} == {"128": 1.0}


def test_side_that_fails_has_no_time_and_is_no_baseline(tmp_path):
    pair = {"before": {"correct": False, "mean_ms": 1.0}, "after": {"correct": True, "median_us": 500, "mean_us": 9}}
    _report, rows = load(tmp_path, put(tmp_path / "softmax.json", pair))
    found = {row["candidate"]: row for row in rows}
    assert (found["before"]["status"], found["before"]["candidate_median_ns"]) == ("incorrect_values", None)
    assert (found["after"]["candidate_median_ns"], found["after"]["speedup"], found["after"]["labels"]) == (
        5e5,
        None,
        [],
    )


def test_gpu_is_that_of_the_result_or_of_the_pair(tmp_path):
    document = {"a": {**PAIR, "gpu": "h100"}, "b": {"before": RUN, "after": RUN, "gpu": "h100"}}
    _report, rows = load(tmp_path, put(tmp_path / "x.json", document))
    assert {row["problem"]: row["gpu"] for row in rows} == {"a": "h100", "b": "NVIDIA L4"}


@pytest.mark.parametrize(
    ("pair", "reason"),
    [
        ({"before": 2.0, "after": 0.5}, "before: is a time without a unit; add the key unit to the pair, or say it"),
        ({"before": 2, "after": 1, "unit": "h"}, "unit: 'h' is not a known unit: ns, us, ms, s"),
        ({"before": 2, "after": -1, "unit": "ms"}, "after: must not be negative; got -1"),
        ({"before": 2, "after": float("nan"), "unit": "ms"}, "after: must be a finite number; got nan"),
        ({"before": "2", "after": "1"}, "before: must be a number; got a string"),
        ({"before": {"speed": 2}, "after": {"speed": 1}}, "before: is not a result that is known: it has no key with"),
        ({**PAIR, "after": {"mean_ms": "1"}}, "after.mean_ms: must be a number; got a string"),
        ({**PAIR, "after": {**RUN, "compiled": 1}}, "after.compiled: must be true or false; got a number"),
        ({**PAIR, "gpu": []}, "gpu: must be a string; got a list"),
        ({"before": None, "after": None}, "is not a pair: an object with before and after"),
        ({"before": {}}, "is not a pair: an object with before and after"),
        (5, "is not a pair: an object with before and after"),
    ],
)
def test_bad_pair_is_refused_with_its_reason_and_line(tmp_path, pair, reason):
    report, rows = load(tmp_path, put(tmp_path / "x.json", {"bad": pair, "softmax": PAIR}))
    assert said(rows) == BOTH
    (refused,) = report.refused
    assert reason in refused.reason
    assert refused.line >= 2


def test_pairs_by_line_need_names(tmp_path):
    report, rows = load(tmp_path, put(tmp_path / "x.jsonl", [{"task": "softmax", **PAIR}, PAIR]))
    assert said(rows) == BOTH
    assert [(one.line, one.reason) for one in report.refused] == [
        (2, "does not name its problem; add one of the keys problem, task, name, kernel, op")
    ]


def test_list_of_unknown_objects_is_refused_by_its_keys(tmp_path):
    put(tmp_path / "x.json", [{"old": 1, "new": 2}])
    with pytest.raises(NothingSelectedError, match="is in no known format: it is a list of 1") as refused:
        load(tmp_path)
    assert "in the first element, its keys are old, new" in refused.value.what
    assert "--mapping" in refused.value.next_step
