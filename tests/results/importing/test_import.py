"""Whole imports: formats told apart, files accounted for, tables that every analysis reads."""

import hashlib
import json
from collections import Counter

import polars as pl
import pytest

from kernel_matrix.analysis.outcomes import outcomes, sessions
from kernel_matrix.analysis.tables import open_tables
from kernel_matrix.errors import NothingSelectedError, StoreError, UsageError
from kernel_matrix.results.importing import FORMATS, import_results
from kernel_matrix.results.schema import TABLES
from kernel_matrix.sources.json_files import MAX_LINE_BYTES
from tests.results.importing.made import DATA, load, put, timing

NAMES = ("batches", "cells", "hosts", "kernels", "samples")


def digests(folder):
    return {name: hashlib.sha256((folder / f"{name}.parquet").read_bytes()).hexdigest() for name in NAMES}


@pytest.fixture
def two(tmp_path):
    for machine, mean in (("b", 1.0), ("a", 2.0)):
        for baseline, factor in (("torch", 1), ("torch_compile_cudagraphs", 0.5)):
            entries = {f"{number}_P.py": timing(mean * factor, hardware=f"GPU {machine}") for number in range(1, 30)}
            put(tmp_path / "in" / machine / f"baseline_time_{baseline}.json", {"level1": entries})
    return tmp_path / "in"


def test_imported_tables_have_the_schema_and_can_be_analysed(tmp_path, two):
    report = import_results([two], tmp_path / "out")
    assert {name: dict(pl.read_parquet(tmp_path / "out" / f"{name}.parquet").schema) for name in NAMES} == TABLES
    assert pl.read_parquet_metadata(tmp_path / "out" / "cells.parquet")["kernel_matrix_tables"]
    tables = open_tables([tmp_path / "out"])
    found = outcomes(tables.cells).collect()
    assert (found.height, report.rows, report.hosts, report.gpus) == (116, 116, 2, 2)
    assert found["speedup"].drop_nulls().to_list() == pytest.approx([2.0] * 58)
    assert sessions(tables.cells).collect().height == 116
    hosts = tables.hosts.collect()
    assert hosts.select("hostname", "gpu_name", "records").sort("hostname").rows() == [
        ("a", "GPU a", 58),
        ("b", "GPU b", 58),
    ]
    assert set(tables.cells.collect()["host_id"]) == set(hosts["host_id"])


def test_import_gives_equal_bytes_for_any_place_and_order(tmp_path, two):
    import_results([two], tmp_path / "out")
    first = digests(tmp_path / "out")
    import_results([two], tmp_path / "out")
    assert digests(tmp_path / "out") == first
    import_results([*sorted(two.glob("*/*"), reverse=True), two], tmp_path / "again")
    assert digests(tmp_path / "again") == first
    for machine, parent in (("a", "y"), ("b", "x")):
        (tmp_path / "moved" / parent).mkdir(parents=True)
        (two / machine).rename(tmp_path / "moved" / parent / machine)
    import_results([tmp_path / "moved"], tmp_path / "third")
    assert digests(tmp_path / "third") == first


def test_the_run_is_the_content(tmp_path):
    path = put(tmp_path / "L4" / "baseline_time_torch.json", {"level1": {"1_P.py": timing()}})
    _report, rows = load(tmp_path, path)
    assert rows[0]["run_id"] == f"import:kernelbench-timing:{hashlib.sha256(path.read_bytes()).hexdigest()[:12]}"


def test_copies_count_once_per_machine(tmp_path):
    for place in ("x/L4", "y/L4", "y/H100"):
        put(tmp_path / place / "baseline_time_torch.json", {"level1": {"1_P.py": timing()}})
    report, rows = load(tmp_path)
    assert (sorted(row["gpu"] for row in rows), report.duplicates) == (["H100", "L4"], 1)
    assert len({row["run_id"] for row in rows}) == 1


def test_one_cell_in_files_that_differ_is_said(tmp_path):
    for place, mean in (("x/L4", 1.0), ("y/L4", 2.0)):
        put(tmp_path / place / "baseline_time_torch.json", {"level1": {"1_P.py": timing(mean)}})
    report, rows = load(tmp_path)
    assert (sorted(row["attempt"] for row in rows), report.contested) == ([1, 2], 1)


def test_one_bad_file_does_not_end_the_others(tmp_path):
    put(tmp_path / "L4" / "baseline_time_torch.json", {"level1": {"1_P.py": timing()}})
    bad = {
        "broken.json": '{"level1":\n {"1_P.py" 4}}',
        "other.json": {"hello": 1, "world": 2},
        "list.json": [],
        "latin.json": b'{"a": "\xe9"}',
        "number.json": "5",
        "lines.jsonl": "{\n",
        "nothing.jsonl": "",
        "null.json": "null",
    }
    for name, content in bad.items():
        put(tmp_path / "L4" / name, content)
    (tmp_path / "L4" / "pipe.json").symlink_to(tmp_path / "gone")
    (tmp_path / "L4" / "notes.txt").write_text("not looked at")
    report, rows = load(tmp_path)
    assert len(rows) == 1
    said = {one.path.name: (one.line, one.reason) for one in report.refused}
    assert said == {
        "broken.json": (2, "not valid JSON: Expecting ':' delimiter"),
        "other.json": (None, "is in no known format: its keys are hello, world"),
        "list.json": (None, "is in no known format: it is a list of 0"),
        "latin.json": (1, "is not UTF-8 text"),
        "number.json": (None, "is in no known format: it is a number"),
        "lines.jsonl": (1, "not valid JSON: Expecting property name enclosed in double quotes"),
        "nothing.jsonl": (None, "is in no known format: it is null"),
        "null.json": (None, "is in no known format: it is null"),
        "pipe.json": (None, "there is no such file"),
    }
    listed = [json.loads(line) for line in (tmp_path / "tables" / "rejected.jsonl").read_text().splitlines()]
    assert {(row["path"], row["line"], row["detail"]) for row in listed} == {
        (str(one.path), one.line, one.reason) for one in report.refused
    }


@pytest.mark.parametrize("name", tuple(FORMATS))
@pytest.mark.parametrize("document", [5, [], {}, "text", [5], {"context": 3, "benchmarks": 4, "devices": 5}])
def test_no_format_stumbles_over_what_is_none_of_it(tmp_path, name, document):
    put(tmp_path / "a.json", document if not isinstance(document, str) else json.dumps(document))
    with pytest.raises(NothingSelectedError, match="none of 1 files"):
        import_results([tmp_path], tmp_path / "out", format_name=name)


@pytest.mark.parametrize("name", [name for name in FORMATS if name not in ("trace", "pairs")])
@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("", ": holds no document"),
        ("{}\n{}\n", ": holds more than one document, and its format has one per file"),
        ("{\n", ":1: not valid JSON: Expecting property name enclosed in double quotes"),
    ],
)
def test_single_document_formats_refuse_none_and_several(tmp_path, name, lines, said):
    path = put(tmp_path / "a.jsonl", lines)
    with pytest.raises(NothingSelectedError) as refused:
        import_results([tmp_path], tmp_path / "out", format_name=name)
    assert refused.value.what.endswith(f"{path}{said}")


def test_file_with_several_documents_does_not_stop_others(tmp_path):
    good = {"level1": {"1_P.py": timing()}}
    for name, lines in (("torch", [good]), ("twice", [good, good])):
        put(tmp_path / "L4" / f"baseline_time_{name}.jsonl", lines)
    report, rows = load(tmp_path)
    assert [row["candidate"] for row in rows] == ["torch"]
    assert [(one.path.stem, one.reason) for one in report.refused] == [
        ("baseline_time_twice", "holds more than one document, and its format has one per file")
    ]


def test_files_that_differ_in_an_overlong_line_are_two_runs(tmp_path):
    for machine, character in (("A", "a"), ("B", "b")):
        line = json.dumps({"level1": {"1_P.py": timing()}})
        put(tmp_path / machine / "baseline_time_torch.jsonl", f"{line}\n{character * (MAX_LINE_BYTES + 9)}\n")
    report, rows = load(tmp_path)
    files = sorted(tmp_path.glob("*/baseline_time_torch.jsonl"))
    contents = [hashlib.sha256(file.read_bytes()).hexdigest()[:12] for file in files]
    assert [row["run_id"] for row in rows] == [f"import:kernelbench-timing:{content}" for content in contents]
    assert [(one.path, one.line, one.reason) for one in report.refused] == [
        (file, 2, "is longer than 16 MiB") for file in files
    ]


def test_import_of_nothing_names_formats_and_keeps_tables(tmp_path, two):
    out = tmp_path / "out"
    import_results([two], out)
    before = digests(out)
    put(tmp_path / "bad" / "a.json", {"hello": 1})
    with pytest.raises(NothingSelectedError) as refused:
        import_results([tmp_path / "bad"], out)
    assert "bad/a.json: is in no known format: its keys are hello" in str(refused.value)
    assert all(name in str(refused.value) for name in FORMATS)
    (tmp_path / "empty").mkdir()
    with pytest.raises(NothingSelectedError, match=r"no \.json or \.jsonl file"):
        import_results([tmp_path / "empty"], out)
    assert digests(out) == before


def test_what_cannot_be_asked_for(tmp_path, two):
    with pytest.raises(UsageError, match="does not exist"):
        import_results([tmp_path / "gone"], tmp_path / "out")
    with pytest.raises(UsageError, match="is not a known format"):
        import_results([two], tmp_path / "out", format_name="csv")
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="cannot be written"):
        import_results([two], tmp_path / "file")


def test_merge_without_traces_removes_older_telemetry(tmp_path, two):
    put(tmp_path / "out" / "telemetry.parquet", b"older")
    put(tmp_path / "out" / "objections.parquet", b"older")
    import_results([two], tmp_path / "out")
    assert not (tmp_path / "out" / "telemetry.parquet").exists()
    assert not (tmp_path / "out" / "objections.parquet").exists()
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == [
        *(f"{n}.parquet" for n in NAMES[:4]),
        "rejected.jsonl",
        "samples.parquet",
    ]


def test_names_in_any_script_and_halves_of_characters_are_stored(tmp_path):
    entries = '{"level1": {"1_Größe_\\ud800.py": %s, "2_行列.py": %s}}' % ((json.dumps(timing(hardware="显卡")),) * 2)
    _report, rows = load(tmp_path, put(tmp_path / "Rechner ß" / "baseline_time_torch.json", entries))
    assert [row["problem"] for row in rows] == ["level1/1_Größe_\\ud800", "level1/2_行列"]
    assert {(row["hostname"], row["gpu"], row["gpu_name"]) for row in rows} == {("Rechner ß", "显卡", "显卡")}


@pytest.mark.skipif(not DATA.is_dir(), reason=f"{DATA} is not here: no tables of other people's times")
def test_all_published_tables_are_read_whole(tmp_path):
    report = import_results([DATA], tmp_path / "out")
    assert report.refused == ()
    assert Counter(file.format for file in report.files) == {"kernelbench-timing": 34, "kernelbenchx-golden": 184}
    cells = pl.read_parquet(tmp_path / "out" / "cells.parquet")
    per_matrix = cells.group_by("matrix").agg(pl.len(), pl.col("gpu").n_unique()).sort("matrix")
    assert per_matrix.rows() == [
        ("kernelbench-timing-v0", 7500, 9),
        ("kernelbench-timing-v0.1", 1000, 2),
        ("kernelbenchx-golden", 2345, 1),
    ]
    assert Counter(cells["status"]) == {"passed": 10_831, "infra_error": 14}
    assert cells["cell_id"].n_unique() == cells["record"].n_unique() == 34 * 250 + 184
    assert cells.select("record", "workload").is_unique().all()
    assert outcomes(cells.lazy()).collect().height == 10_845
    assert (report.contested, report.duplicates) == (0, 0)
    boards = cells.filter(pl.col("gpu") == "A100_modal")["gpu_name"].unique().sort().to_list()
    assert boards == ["NVIDIA A100-SXM4-40GB", "NVIDIA A100-SXM4-80GB"]
