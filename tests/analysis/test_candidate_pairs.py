"""Pairs: failing and passing, slower and faster, and nothing that is not shown."""

import json

import polars as pl
import pytest

from kernel_matrix.analysis import believed_records
from kernel_matrix.analysis.believed_records import find_believed_records
from kernel_matrix.analysis.candidate_pairs import PAIRS, make_pairs
from kernel_matrix.analysis.source_identity import SourceText
from tests.analysis.made import STEADY, failed, tables, timed

SLOW = tuple(1.5 * value for value in STEADY)  # the baseline takes 200
UNTIMED = dict.fromkeys(("candidate_median_ns", "baseline_median_ns", "speedup", "verdict"))
MIT = "# SPDX-License-Identifier: MIT\n"


def at(name, medians, **columns):
    """Rows of a candidate of softmax with these session medians; its calls may have taken 5 % longer."""
    bound = round(1.05 * max(medians))
    return timed(medians, **{"candidate": f"softmax/{name}", "wall_bound_ns": bound, **columns})


def crashed(name="bad", **columns):
    return [failed(candidate=f"softmax/{name}", **columns)]


def made(*parts, texts=None, **options):
    """Pairs of the rows; a candidate's source is its name, unless ``texts`` has another."""
    rows = [row for part in parts for row in part]
    found = tables(rows)
    names = {row["candidate_sha256"]: row["candidate"].split("/")[1] for row in rows}
    sources = {digest: SourceText((texts or {}).get(name, f"{name} = 1\n")) for digest, name in names.items()}
    return make_pairs(found, find_believed_records(found), {**sources, **options.pop("references", {})}, **options)


def sides(pairs, *columns):
    return pairs.table.select("before", "after", *columns).rows()


@pytest.fixture
def unaudited(monkeypatch):
    """The audit objects to nothing; its checks take most of the time, and other tests have them for such rows."""
    none = pl.DataFrame(schema={"record": pl.UInt32, "workload": pl.String, "checks": pl.List(pl.String)})
    monkeypatch.setattr(believed_records, "objections", lambda _tables: none)


def test_failing_and_passing_are_an_error_correction():
    (row,) = made(crashed(), at("good", STEADY)).table.to_dicts()
    assert row["kind"] == "error_correction"
    assert (row["before"], row["after"], row["status_before"], row["verdict"]) == (
        *("bad = 1\n", "good = 1\n", "crashed", "fixed"),
    )
    assert json.loads(row["evidence_before"]) == {"message": "signal 11", "stage": "done"}
    assert (row["record_before"].split("/")[-1], row["record_after"].split("/")[-1]) == ("bad.1", "good.1")
    assert (row["speedup"], row["licence"], row["origin_after"]["source"]) == (None, None, "folder")


def test_pair_tells_nothing_of_a_held_out_shape():
    (row,) = made(crashed(specialised=True), at("good", STEADY)).table.to_dicts()
    assert json.loads(row["evidence_before"]) == {"message": "fails a shape that is held out", "stage": "done"}
    shown = [*at("slow", SLOW), *at("fast", STEADY)]
    held_out = [{**one, "workload": "secret", "held_out": True, **UNTIMED} for one in shown]
    (row,) = made(shown, held_out).table.to_dicts()
    assert row["kind"] == "optimisation"
    assert "secret" not in json.dumps(row)


def test_slower_and_faster_are_an_optimisation_with_its_bound():
    (row,) = made(at("slow", SLOW), at("fast", STEADY)).table.to_dicts()
    assert (row["kind"], row["verdict"], row["evidence_before"]) == ("optimisation", "improvement", None)
    assert (row["before"], row["after"]) == ("slow = 1\n", "fast = 1\n")
    assert row["speedup"] == pytest.approx(1.5)
    assert row["speedup_limit"] == pytest.approx(150 / 105, rel=0.01)
    assert row["time_before_ns"] == pytest.approx(150, rel=0.01)
    assert row["reason"].startswith("default: 1.5×")


@pytest.mark.usefixtures("unaudited")
def test_a_difference_that_may_be_noise_is_no_pair():
    noisy = (90.0, 112.0, 99.0, 105.0, 101.0)
    found = made(at("one", noisy), at("two", STEADY))
    assert found.table.is_empty()
    assert found.pairs_left_out == {"a workload is not shown to be faster": 1}


@pytest.mark.usefixtures("unaudited")
def test_a_bound_that_does_not_beat_the_slower_time_is_no_pair():
    found = made(at("slow", SLOW), at("fast", STEADY, wall_bound_ns=155))
    assert found.table.is_empty()
    assert list(found.pairs_left_out) == [
        "it may not be faster, had its calls taken as long as the judge's clock allows"
    ]


@pytest.mark.usefixtures("unaudited")
def test_every_workload_has_to_be_faster():
    second = {"workload": "large"}
    found = made(at("slow", SLOW), at("slow", STEADY, **second), at("fast", STEADY), at("fast", STEADY, **second))
    assert (found.table.height, found.pairs_left_out) == (0, {"a workload is not shown to be faster": 1})
    faster = made(at("slow", SLOW), at("slow", SLOW, **second), at("fast", STEADY), at("fast", STEADY, **second))
    assert faster.table["reason"].item().count("×") == 2


@pytest.mark.usefixtures("unaudited")
@pytest.mark.parametrize(
    "columns",
    [
        {"gpu": "h100"}, {"toolchain": "cu124"}, {"dtype": "fp16"}, {"tier": "screen"}, {"image_id": "sha256:2"},
        {"problem_sha256": "another version"}, {"measurement_version": "2" * 64}, {"matrix": "other"},
        {"host_id": "host2", "hostname": "node2"}, {"gpu_uuid": "GPU-2"}, {"driver": "590.1"}, {"torch": "2.12.0"},
        {"clock_state": "unlocked"}, {"workload": "large"}, {"grade": "C"}, {"labels": ["interpreted"]},
    ],
)  # fmt: skip
def test_times_of_other_conditions_are_no_pair(columns):
    assert made(at("slow", SLOW), at("fast", STEADY, **columns)).table.is_empty()


@pytest.mark.parametrize("columns", [{"gpu_uuid": "GPU-2"}, {"clock_state": None, "torch": None, "grade": None}])
def test_correctness_does_not_depend_on_the_board(columns):
    assert made(crashed(**columns), at("good", STEADY)).table.height == 1


@pytest.mark.usefixtures("unaudited")
def test_correction_needs_the_workload_that_failed():
    assert made(crashed(workload="large"), at("good", STEADY)).table.is_empty()


@pytest.mark.usefixtures("unaudited")
def test_nearest_text_is_the_partner_and_more_on_request():
    texts = {"bad": "a\nb\nc\nd\n", "near": "a\nb\nc\ne\n", "far": "a\nx\ny\nz\n"}
    parts = (crashed(), at("far", STEADY), at("near", STEADY))
    assert sides(made(*parts, texts=texts), "relation", "similarity") == [
        (texts["bad"], texts["near"], "nearest_text", 0.75)
    ]
    assert made(*parts, texts=texts, most_each=2).table.height == 2


@pytest.mark.usefixtures("unaudited")
def test_parent_is_preferred_to_the_nearest_text():
    texts = {"bad": "a\nb\n", "near": "a\nb\nc\n", "child": "x\n"}
    found = made(crashed(), at("near", STEADY), at("child", STEADY, origin_parent="bad"), texts=texts)
    assert sides(found, "relation") == [("a\nb\n", "x\n", "parent")]


@pytest.mark.usefixtures("unaudited")
def test_slower_child_is_not_the_faster_side_of_its_parent():
    found = made(at("parent", STEADY), at("child", SLOW, origin_parent="parent"))
    assert sides(found, "relation") == [("child = 1\n", "parent = 1\n", "nearest_text")]


@pytest.mark.usefixtures("unaudited")
def test_same_sources_are_one_pair_whatever_the_dtype():
    half = {"dtype": "fp16"}
    found = made(crashed(), at("good", STEADY), crashed(**half), at("good", STEADY, **half))
    assert found.table.height == 1
    assert found.pairs_left_out == {"another pair has the same two sources": 1}


@pytest.mark.usefixtures("unaudited")
def test_sources_that_differ_in_comments_are_no_pair():
    texts = {"bad": "x = 1\n", "good": "x = 1  # flaky\n"}
    assert made(crashed(), at("good", STEADY), texts=texts).table.is_empty()


@pytest.mark.usefixtures("unaudited")
def test_problems_with_the_same_reference_are_in_one_split():
    names = [f"p{number}" for number in range(30)]
    parts = [
        part
        for name in names
        for part in (
            crashed(f"bad_{name}", problem=name),
            at(f"good_{name}", STEADY, problem=name, candidate=f"{name}/good_{name}"),
        )
    ]
    assert made(*parts).table["split"].n_unique() > 1
    same = {f"of {name}": SourceText("class Model: ...  # the same\n") for name in names}
    found = made(*parts, references=same).table
    assert (found.height, found["split"].n_unique()) == (30, 1)


@pytest.mark.usefixtures("unaudited")
def test_licence_is_known_only_if_both_sides_name_one():
    texts = {"bad": f"{MIT}x = 1\n", "good": MIT.replace("MIT", "Apache-2.0")}
    assert made(crashed(), at("good", STEADY), texts=texts).table["licence"].item() == "Apache-2.0 AND MIT"
    assert made(crashed(), at("good", STEADY), texts={"bad": MIT}).table["licence"].item() is None


def test_records_without_source_are_counted():
    found = tables([*crashed(), *at("good", STEADY)])
    pairs = make_pairs(found, find_believed_records(found), {})
    assert pairs.table.schema == PAIRS
    assert pairs.records_left_out["the source is not here as it was measured"] == 2
