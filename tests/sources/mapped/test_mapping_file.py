"""The mapping file: what it may say, and what is wrong with one."""

import pytest

from kernel_matrix.errors import UsageError
from kernel_matrix.json_schemas import load_schema
from kernel_matrix.model.enums import Status
from kernel_matrix.sources.mapped.mapping_file import load_mapping
from kernel_matrix.sources.measurement import NS_PER_UNIT

FULL = """\
rows = "report.results"
baseline_candidate = "torch"
[columns]
problem = "kernel"
candidate = "impl"
workload = ["m", "n"]
time = "us"
status = "ok"
[constants]
dtype = "float16"
[time]
unit = "us"
statistic = "mean"
[status]
passed = [true, 1, "OK"]
timeout = ["slow"]
"""
LEAST = '[columns]\nproblem = "p"\ncandidate = "c"\ntime = "t"\n[time]\nunit = "ms"\nstatistic = "median"\n'


@pytest.fixture
def mapping(tmp_path):
    def write(text):
        path = tmp_path / "mapping.toml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def test_all_that_a_mapping_may_say(mapping):
    found = load_mapping(mapping(FULL))
    assert (found.rows, found.columns["workload"], found.columns["time"]) == (
        ("report", "results"),
        ("m", "n"),
        ("us",),
    )
    assert (found.ns_per_unit, found.is_mean, found.baseline_candidate) == (1e3, True, "torch")
    assert found.statuses == {
        "true": Status.PASSED,
        "1": Status.PASSED,
        "ok": Status.PASSED,
        "slow": Status.TIMEOUT,
    }


@pytest.mark.parametrize(
    ("change", "line", "words"),
    [
        (("problem =", "problm ="), 2, "columns.problm: unknown key; allowed: problem, candidate, .*mean 'problem'"),
        (("[columns]", "[colums]"), 1, "colums: unknown key; allowed: rows, columns, .*did you mean 'columns'"),
        (('"ms"', '"msec"'), 6, "time.unit: 'msec' is not allowed; allowed: ns, us, ms, s; did you mean 'ms'"),
        (('"median"', '"mode"'), 7, "time.statistic: 'mode' is not allowed; allowed: median, mean"),
        (('"p"', "5"), 2, "columns.problem: 5 is not of type 'string'"),
        (('"p"', '""'), 2, "columns.problem: '' should be non-empty"),
        (('problem = "p"', ""), 1, "columns.problem: missing; name the column of the problem, or give it in"),
        (('time = "t"', ""), 1, "columns.time: missing; without a time and a status, a row says nothing"),
        (('time = "t"', 'status = "t"'), 1, "status: a column status and .* need each other"),
        (('unit = "ms"', ""), 5, "time: 'unit' is a required property"),
        (("[time]", "[time"), 5, "not valid TOML"),
        (("[time]", "[constants]\nproblem = 'x'\n[time]"), 6, "constants.problem: is in .columns. too"),
        (("[time]", "[constants]\ndtype = 'fp61'\n[time]"), 6, "constants.dtype: 'fp61' is not known; allowed: fp32"),
        (("[time]", "[status]\npassed = ['x']\n[time]"), 5, "status: a column status and"),
    ],
)
def test_each_fault_names_file_line_key_and_what_is_allowed(mapping, change, line, words):
    path = mapping(LEAST.replace(*change))
    with pytest.raises(UsageError, match=words) as refused:
        load_mapping(path)
    assert str(refused.value).startswith(f"{path}:{line}: ")


def test_one_value_cannot_mean_two_statuses(mapping):
    with pytest.raises(UsageError, match=r"status\.timeout: 'OK' is a value of passed too"):
        load_mapping(mapping(FULL.replace('"slow"', '"OK"')))


@pytest.mark.parametrize("text", [b"\xff\xfe", b"a = " + b"[" * 5000, b"\x00", b'"' * 70_000])
def test_hostile_file_is_one_usage_error(mapping, text):
    with pytest.raises(UsageError, match=r"mapping\.toml:(1:)? "):
        load_mapping(mapping(text))


def test_absent_file_is_a_usage_error(tmp_path):
    with pytest.raises(UsageError, match="there is no such file"):
        load_mapping(tmp_path / "absent.toml")


def test_schema_has_our_units_and_statuses():
    properties = load_schema("mapping")["properties"]
    assert properties["time"]["properties"]["unit"]["enum"] == list(NS_PER_UNIT)
    assert set(properties["status"]["properties"]) <= {status.value for status in Status}
    assert set(properties["constants"]["properties"]) < set(properties["columns"]["properties"])
