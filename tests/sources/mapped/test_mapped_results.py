"""Results of any columns, by a mapping: CSV, TSV, Parquet, JSON and JSONL."""

import json
from datetime import date

import polars as pl
import pytest

from kernel_matrix.errors import NothingSelectedError, UsageError
from kernel_matrix.sources.mapped import row_files
from tests.results.importing.made import load, only, put

ROWS = [
    {"kernel": "softmax", "impl": "torch", "us": 12.0, "ok": True},
    {"kernel": "softmax", "impl": "mine", "us": 8.0, "ok": True},
    {"kernel": "gelu", "impl": "mine", "us": None, "ok": False},
]
COLUMNS = 'problem = "kernel"\ncandidate = "impl"\ntime = "us"\nstatus = "ok"\n'
TIMES = '[time]\nunit = "us"\nstatistic = "median"\n'
PASSED = "[status]\npassed = [true]\n"
MAPPING = f'baseline_candidate = "torch"\n[columns]\n{COLUMNS}{TIMES}{PASSED}'
PLAIN = f'[columns]\nproblem = "kernel"\ncandidate = "impl"\ntime = "us"\n{TIMES}'
CSV = "kernel,impl,us,ok\nsoftmax,torch,12.0,True\nsoftmax,mine,8,TRUE\ngelu,mine,,false\n"


def mapped(root, path, text=MAPPING, **options):
    mapping = put(root / "mapping.toml", text)
    return load(root, path, mapping=mapping, **options)


def parquet(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    pl.DataFrame(rows).write_parquet(path)
    return path


def said(rows):
    return [(r["problem"], r["candidate"], r["status"], r["candidate_median_ns"], r["speedup"]) for r in rows]


EXPECTED = [
    ("softmax", "torch", "passed", 12e3, None),
    ("softmax", "mine", "passed", 8e3, 1.5),
    ("gelu", "mine", "incorrect_values", None, None),
]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", CSV),
        ("a.csv", "\ufeff" + CSV.replace("\n", "\r\n")),
        ("a.csv", CSV.replace(",", ";").replace("mine,", "mine,\n")),
        ("a.tsv", CSV.replace(",", "\t")),
        ("a.csv", '"kernel","impl","us","ok"\n' + CSV.partition("\n")[2]),
        ("a.json", ROWS),
        ("a.jsonl", ROWS),
        ("a.PARQUET", None),
    ],
)
def test_each_kind_of_file_gives_the_same_rows(tmp_path, name, content):
    path = tmp_path / "x" / name
    _ = parquet(path, ROWS) if content is None else put(path, content)
    report, rows = mapped(tmp_path, path)
    assert sorted(said(rows)) == sorted(EXPECTED)
    assert (report.refused, report.files[0].notes, report.files[0].format) == ((), (), "mapping")


@pytest.mark.parametrize(
    ("rows", "document"),
    [
        ("", {"softmax": {"impl": "mine", "gpu": {"us": 8}}}),
        ('rows = "report.all"\n', {"report": {"all": [{"@key": "softmax", "impl": "mine", "gpu": {"us": "8"}}]}}),
        ('rows = "report.all"\n', {"report": {"all": {"softmax": {"impl": "mine", "gpu": {"us": 8}, "n": {}}}}}),
    ],
)
def test_rows_and_columns_may_lie_deeper_in_json(tmp_path, rows, document):
    text = rows + PLAIN.replace('"kernel"', '"@key"').replace('"us"', '"gpu.us"', 1)
    _report, found = mapped(tmp_path, put(tmp_path / "x.json", document), text)
    assert said(found) == [("softmax", "mine", "passed", 8e3, None)]


def test_every_column_and_constant_is_used(tmp_path):
    text = f"""\
[columns]
problem = "p"
workload = "shape"
gpu = "device"
time = "t"
baseline_time = "ref"
std = "sd"
trials = "n"
[constants]
candidate = "mine"
dtype = "half"
toolchain = "cu128"
{TIMES.replace("median", "mean").replace("us", "ms")}"""
    header = "p,shape,device,t,ref,sd,n"
    path = put(tmp_path / "a.csv", f"{header}\nlevel1/19_ReLU.py,64x32,H100,2,4,0.5,100\n")
    row = only(tmp_path, path, mapping=put(tmp_path / "mapping.toml", text))
    assert (row["problem"], row["level"], row["candidate"], row["workload"]) == ("level1/19_ReLU", 1, "mine", "64x32")
    assert (row["gpu"], row["dtype"], row["toolchain"], row["labels"]) == ("H100", "fp16", "cu128", ["mean_not_median"])
    assert (row["candidate_median_ns"], row["baseline_median_ns"], row["speedup"]) == (2e6, 4e6, 2.0)
    assert (row["spread_within"], row["candidate_samples"]) == (0.25, 100)


def test_workload_of_several_columns_names_them(tmp_path):
    text = PLAIN.replace("time =", 'workload = ["m", "n"]\ntime =', 1)
    _report, rows = mapped(tmp_path, put(tmp_path / "a.csv", "kernel,impl,us,m,n\na,b,1,64,\na,b,1,64,2\n"), text)
    assert [row["workload"] for row in rows] == ["m=64", "m=64,n=2"]


def test_shape_in_json_is_named_as_elsewhere(tmp_path):
    text = PLAIN.replace("time =", 'workload = "shape"\ntime =', 1)
    row = {"kernel": "a", "impl": "b", "us": 1, "shape": [[64, 32], [8]]}
    assert mapped(tmp_path, put(tmp_path / "a.json", [row]), text)[1][0]["workload"] == "64x32,8"


def test_statuses_may_be_told_apart(tmp_path):
    text = MAPPING.replace("[true]", '["good", 1]\ncompile_error = ["build"]').replace(
        'baseline_candidate = "torch"', ""
    )
    _report, rows = mapped(
        tmp_path, put(tmp_path / "a.csv", "kernel,impl,us,ok\na,1,1,Good\na,2,1,BUILD\na,3,1,off\na,4,,1\n"), text
    )
    found = {row["candidate"]: (row["status"], row["message"], row["candidate_median_ns"]) for row in rows}
    assert found == {
        "1": ("passed", None, 1e3),
        "2": ("compile_error", "the file says 'BUILD'", None),
        "3": ("incorrect_values", "the file says 'off'", None),
        "4": ("passed", None, None),
    }


def test_numbers_and_names_of_problems_join_within_an_import(tmp_path):
    path = put(tmp_path / "a.csv", "kernel,impl,us\nlevel1/19,a,1\nlevel1/19_ReLU,b,1\n")
    assert {row["problem"] for row in mapped(tmp_path, path, PLAIN)[1]} == {"level1/19_ReLU"}


def test_repeated_rows_are_attempts_and_noted(tmp_path):
    path = put(tmp_path / "a.csv", "kernel,impl,us\na,b,1\na,b,2\n")
    report, rows = mapped(tmp_path, path, PLAIN)
    assert [(row["attempt"], row["candidate_median_ns"]) for row in rows] == [(1, 1e3), (2, 2e3)]
    assert report.files[0].notes[0].startswith("1 rows repeat problem, candidate and workload of others")


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("softmax,mine,fast,true", "us: must be a number; got 'fast'"),
        ("softmax,mine,-1,true", "us: must not be negative; got -1"),
        ("softmax,mine,inf,true", "us: must be a finite number; got inf"),
        ("softmax,mine,1e308,true", "us: is too large a number: 1e+308"),
        (" ,mine,1,true", "lacks a problem: column 'kernel' is empty"),
        ("softmax,mine,1,", "lacks a status: column 'ok' is empty"),
        ("softmax,mine,1", "has 3 fields, but the header has 4"),
        (f"softmax,{'x' * 501},1,true", "impl: must have at most 500 characters"),
    ],
)
def test_bad_row_is_refused_with_its_line_and_others_count(tmp_path, row, reason):
    text = MAPPING.replace('baseline_candidate = "torch"', "")
    path = put(tmp_path / "a.csv", f'kernel,impl,us,ok\n"a\nb",one,1,true\n\n{row}\nc,two,2,true\n')
    report, rows = mapped(tmp_path, path, text)
    assert {row["problem"] for row in rows} == {"a\nb", "c"}
    assert [(one.line, one.reason) for one in report.refused] == [(5, reason)]


@pytest.mark.parametrize("value", ["", "NaN", None])
def test_row_without_time_and_status_is_refused(tmp_path, value):
    rows = [{"kernel": "a", "impl": "b", "us": value}, {"kernel": "a", "impl": "c", "us": 1}]
    report, found = mapped(tmp_path, put(tmp_path / "a.json", rows), PLAIN)
    assert [row["candidate"] for row in found] == ["c"]
    assert report.refused[0].reason.endswith("lacks a time: column 'us' is empty")


@pytest.mark.parametrize(
    ("name", "content", "said_of_it"),
    [
        ("a.csv", "kernel,impl,ms\na,b,1\n", "has no column 'us'; its columns are kernel, impl, ms"),
        ("a.csv", "kernel,impl,usec\na,b,1\n", "'us'; its columns are kernel, impl, usec; did you mean 'usec'?"),
        ("a.csv", "kernel,us,us\na,b,1\n", "has the column 'us' twice"),
        ("a.csv", 'kernel,impl,us\n"a,b,1\n', "is not readable as CSV from here on: unexpected end of data"),
        ("a.csv", f"kernel,impl,us\n{'x' * 200_000},b,1\n", "is not readable as CSV from here on: field larger"),
        ("a.csv", b"kernel,impl,us\n\xe9,b,1\n", "a.csv:2: is not UTF-8 text"),
        ("a.csv", "", "holds a result that can be read"),
        ("a.parquet", b"PAR1 not really PAR1", "is not readable as Parquet"),
        ("a.parquet", b"", "is not readable as Parquet"),
        ("a.json", [1, [2]], "0: is not a row: an object of columns"),
        ("a.json", {"x": []}, "has no column 'impl'; its columns are x"),
        ("a.json", '{"kernel": 1, "kernel": 2}', "one object has the key 'kernel' twice"),
        ("a.json", "[" * 100_000, "is nested too deeply"),
        ("a.json", [{"kernel": ["a"], "impl": "b", "us": 1}], "0.kernel: must be a text or a number"),
    ],
)
def test_file_that_cannot_be_read_has_the_right_reason(tmp_path, name, content, said_of_it):
    path = put(tmp_path / "x" / name, content)
    with pytest.raises(NothingSelectedError) as refused:
        mapped(tmp_path, path, PLAIN)
    assert said_of_it in str(refused.value)


def test_rows_path_that_is_not_there_is_said(tmp_path):
    with pytest.raises(NothingSelectedError, match=r"a\.json:2: report: lacks 'all'"):
        mapped(tmp_path, put(tmp_path / "a.json", {"report": {"some": []}}), f'rows = "report.all"\n{PLAIN}')


def test_too_large_files_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(row_files, "MAX_ROWS", 2)
    path = parquet(tmp_path / "x" / "a.parquet", [{"kernel": "a", "impl": str(n), "us": 1.0} for n in range(5)])
    report, rows = mapped(tmp_path, path, PLAIN)
    assert len(rows) == 2
    assert report.refused[0].reason == "has 5 rows; those after the first 2 are not read"


def test_parquet_values_of_other_types_are_refused(tmp_path):
    path = parquet(tmp_path / "x" / "a.parquet", [{"kernel": date(2020, 1, 1), "impl": "b", "us": 1.0}])
    with pytest.raises(NothingSelectedError, match=r"a\.parquet:1: kernel: must be a text or a number"):
        mapped(tmp_path, path, PLAIN)


def test_baseline_candidate_that_is_not_there_is_said(tmp_path):
    text = MAPPING.replace('"torch"', '"touch"')
    with pytest.raises(NothingSelectedError, match="no time of the baseline_candidate 'touch'; did you mean 'torch'"):
        mapped(tmp_path, put(tmp_path / "a.csv", CSV), text)


def test_table_without_a_mapping_is_refused_by_that_reason(tmp_path):
    path = put(tmp_path / "a.csv", "definition,workload\na,b\n")
    with pytest.raises(NothingSelectedError, match="is a table; say what its columns mean with --mapping FILE"):
        load(tmp_path, path)


def test_folder_is_searched_for_tables_only_with_a_mapping(tmp_path):
    put(tmp_path / "x" / "a.csv", CSV)
    with pytest.raises(NothingSelectedError, match=r"no \.json or \.jsonl file"):
        load(tmp_path, tmp_path / "x")
    report, _rows = mapped(tmp_path, tmp_path / "x")
    assert report.rows == 3


def test_format_and_mapping_exclude_each_other(tmp_path):
    with pytest.raises(UsageError, match="--format and --mapping exclude each other"):
        mapped(tmp_path, put(tmp_path / "a.csv", CSV), format_name="trace")


def test_same_file_gives_the_same_bytes_and_nothing_is_run(tmp_path):
    hostile = 'kernel,impl,us\n"=cmd|calc","__import__(\'os\')",1\n'
    path = put(tmp_path / "a.csv", hostile)
    first, rows = mapped(tmp_path, path, PLAIN)
    content = first.tables["cells"].read_bytes()
    again, _rows = mapped(tmp_path, path, PLAIN)
    assert again.tables["cells"].read_bytes() == content
    assert rows[0]["problem"] == "=cmd|calc"
    assert json.dumps(rows[0]["run_id"]).startswith('"import:mapping:')


def test_baseline_needs_the_same_workload(tmp_path):
    text = PLAIN.replace("time =", 'workload = "m"\ntime =', 1)
    path = put(tmp_path / "a.csv", "kernel,impl,us,m\na,torch,4,1\na,mine,2,1\na,mine,2,2\n")
    _report, rows = mapped(tmp_path, path, f'baseline_candidate = "torch"\n{text}')
    assert {row["workload"]: row["speedup"] for row in rows if row["candidate"] == "mine"} == {"1": 2.0, "2": None}
