"""Best-known times: making, writing, reading and hashing them."""

import orjson
import polars as pl
import pytest

from kernel_matrix.analysis.bestknown import BASELINE, freeze, make, read, with_efficiency, write
from kernel_matrix.analysis.standings import standings
from kernel_matrix.errors import NothingSelectedError, StoreError, UsageError
from tests.analysis.made import cell, cells, over_sessions, two_nights

ROWS = [
    *over_sessions([(40, 20), (40, 80)], candidate="lucky once"),
    *over_sessions([(40, 30), (40, 30)], candidate="größer/☃"),
    *over_sessions([(50, 60), (50, 60)], candidate="slow", gpu="a100"),
    cell(candidate="wrong", candidate_median_ns=1, baseline_median_ns=40, status="incorrect_values", fault="candidate"),
]


@pytest.fixture
def table():
    return standings(cells(ROWS)).table


def test_best_is_of_one_implementation_over_its_sessions(table):
    best = {row["gpu"]: row for row in make(table).table.to_dicts()}
    assert (best["h200"]["candidate"], best["h200"]["sessions"]) == ("größer/☃", 2)
    assert best["h200"]["best_ns"] == pytest.approx(30)
    assert (best["a100"]["candidate"], best["a100"]["best_ns"]) == (BASELINE, pytest.approx(50))


def test_the_baseline_is_as_good_as_in_its_middle_cell():
    baselines = {"a": 20, "b": 30, "c": 31}
    rows = [cell(candidate=name, baseline_median_ns=ns, candidate_median_ns=90) for name, ns in baselines.items()]
    (best,) = make(standings(cells(rows)).table).table.to_dicts()
    assert (best["candidate"], best["best_ns"], best["sessions"]) == (BASELINE, pytest.approx(30), 3)


def test_what_is_written_is_what_is_read(table, tmp_path):
    best = make(table)
    write(best, tmp_path / "best.json")
    again = read(tmp_path / "best.json")
    assert again.table.equals(best.table)
    assert again.sha256 == best.sha256


def test_the_hash_is_of_the_content_and_not_of_the_order(table):
    assert make(table.reverse()).sha256 == make(table).sha256
    slower = table.with_columns(candidate_ns=pl.col("candidate_ns") * 0.9)
    assert make(slower).sha256 != make(table).sha256


def test_the_hash_of_equal_tables_is_always_the_same():
    # Sums of a grouping in no order differ in the last digit from one reading of the same tables to the next.
    made = cells(two_nights())
    assert len({make(standings(made).table).sha256 for _ in range(50)}) == 1


def edited(**columns):
    return lambda document: document["best"][0].update(columns)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (edited(best_ns=29.0), "was changed after it was frozen"),
        (edited(best_ns=0), "not above 0"),
        (edited(best_ns="30"), "`best_ns` is '30'"),
        (edited(sessions=True), "`sessions` is True"),
        (edited(gpu=None), "`gpu` is None"),
        (edited(further=1), "a row has exactly"),
        (lambda document: document["best"].append(document["best"][0]), "two rows with the same"),
        (lambda document: document.update(kernel_matrix_best_known=2), "of version 1"),
        (lambda document: document.update(best=None), "no list"),
    ],
)
def test_a_changed_file_is_refused(table, tmp_path, change, said):
    path = tmp_path / "best.json"
    write(make(table), path)
    document = orjson.loads(path.read_bytes())
    change(document)
    path.write_bytes(orjson.dumps(document))
    with pytest.raises(StoreError, match=said):
        read(path)


@pytest.mark.parametrize("content", [b"", b"[1]", b"\xff"])
def test_what_is_no_table_is_refused(tmp_path, content):
    path = tmp_path / "best.json"
    path.write_bytes(content)
    with pytest.raises(StoreError):
        read(path)


def test_a_folder_that_is_not_there_is_said(table, tmp_path):
    with pytest.raises(StoreError, match="cannot be written"):
        write(make(table), tmp_path / "no" / "best.json")


def test_efficiency_says_what_has_none(table):
    best = make(table.filter(pl.col("gpu") == "h200"))
    changed = table.with_columns(
        problem_sha256=pl.when(pl.col("candidate") == "lucky once").then(pl.lit("other")).otherwise("problem_sha256")
    )
    found = with_efficiency(changed, best)
    efficiency = dict(found.table.select("candidate", "efficiency").iter_rows())
    assert efficiency == {"größer/☃": pytest.approx(1), "lucky once": None, "slow": None, "wrong": None}
    said = "\n".join(found.notes)
    assert best.sha256 in said
    assert "1 timed cells have no best-known time" in said
    assert "1 timed cells have another content" in said


def test_candidate_faster_than_frozen_best_is_noted(table):
    best = make(table)
    faster = standings(cells(over_sessions([(40, 15)], candidate="new"))).table
    found = with_efficiency(faster, best)
    assert found.table["efficiency"].to_list() == pytest.approx([2.0])
    assert any("1 cells are faster" in note for note in found.notes)


def test_nothing_passed_is_an_empty_table(tmp_path):
    best = make(standings(cells([ROWS[-1]])).table)
    write(best, tmp_path / "best.json")
    assert read(tmp_path / "best.json").table.is_empty()


def test_a_time_without_a_dtype_is_kept_and_found_again(tmp_path):
    """Imported tables may lack the GPU; such a row is never a best time."""
    rows = [
        cell(dtype=None, candidate_median_ns=20, baseline_median_ns=40),
        cell(gpu=None, candidate_median_ns=1, baseline_median_ns=40),
    ]
    best = freeze(cells(rows), tmp_path / "best.json")
    assert read(tmp_path / "best.json").table.equals(best.table)
    found = with_efficiency(standings(cells(rows[:1])).table, best)
    assert found.table["efficiency"].to_list() == [pytest.approx(1)]


def test_nothing_is_frozen_where_nothing_passed(tmp_path):
    with pytest.raises(NothingSelectedError, match="no best-known time"):
        freeze(cells(ROWS[-1:]), tmp_path / "best.json")
    assert not (tmp_path / "best.json").exists()


def test_missing_file_raises_usage_error(tmp_path):
    with pytest.raises(UsageError, match="there is no such file"):
        read(tmp_path / "best.json")
