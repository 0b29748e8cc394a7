"""The page as a file: complete, without network access, and safe against hostile records."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import sys
from html.parser import HTMLParser

import pytest

from kernel_matrix.errors import UsageError
from kernel_matrix.report.page import chart_library, own_script
from kernel_matrix.results.labels import describe_label
from tests.analysis.made import cell, over_sessions, tables, timed

HOSTILE = "<img src=x onerror=alert(1)>"
LOG = "</script><script>alert(2)</script><!--"


class Read(HTMLParser):
    """Elements, the text of scripts, and all attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.attributes: list[str] = []
        self.text = ""
        self.policy = ""

    def handle_starttag(self, tag, attrs):
        self.names.append(tag)
        self.attributes += [name for name, _ in attrs]
        if tag == "script":
            self.scripts.append((dict(attrs), ""))
        if dict(attrs).get("http-equiv") == "Content-Security-Policy":
            self.policy = dict(attrs)["content"] or ""

    def handle_data(self, data):
        if self.names and self.names[-1] == "script" and self.scripts[-1][1] == "":
            self.scripts[-1] = (self.scripts[-1][0], data)
        else:
            self.text += data


def read(path):
    found = Read()
    found.feed(path.read_text(encoding="utf-8"))
    return found


def hostile_rows():
    names = {"candidate": HOSTILE, "problem": HOSTILE, "gpu": HOSTILE, "message": LOG, "category": LOG, "matrix": LOG}
    return [
        cell(**names, status="timeout", fault="candidate"),
        *over_sessions([(200.0, 100.0)] * 2, **{**names, "dtype": "fp16", "labels": [LOG], "gpu_name": HOSTILE}),
    ]


def test_only_our_scripts_may_run_and_nothing_is_loaded(write_page):
    page = read(write_page(tables([cell()])))
    running = [text for attrs, text in page.scripts if attrs.get("type") != "application/json"]
    hashes = {base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in running}
    assert set(re.findall(r"'sha256-([^']+)'", page.policy)) == hashes
    assert page.policy.startswith("default-src 'none'")
    assert "unsafe-eval" not in page.policy
    assert not {"src", "href=http", "onclick", "onload"} & set(page.attributes)
    assert "link" not in page.names
    assert "iframe" not in page.names


def test_what_records_hold_is_text(write_page):
    page = read(write_page(tables(hostile_rows()), title=LOG))
    assert "img" not in page.names
    assert len(page.scripts) == 3
    assert "onerror" not in page.attributes
    assert HOSTILE in page.text
    (data,) = [text for attrs, text in page.scripts if attrs.get("id") == "data"]
    words = {column["name"]: column.get("words") for column in json.loads(data)["cells"]["columns"]}
    assert words["candidate"] == [HOSTILE]
    assert LOG in words["message"]


def test_page_shows_labels_that_say_something(write_page):
    labels = ["unsteady", "budget_reached", "of_another_version"]
    page = read(write_page(tables(over_sessions([(200.0, 100.0)] * 2, labels=labels))))
    (data,) = [json.loads(text) for attrs, text in page.scripts if attrs.get("id") == "data"]
    words = {column["name"]: column.get("words") for column in data["cells"]["columns"]}
    assert words["labels"] == ["of_another_version, unsteady"]
    assert data["labels"]["unsteady"] == describe_label("unsteady")
    assert f"unsteady, 1 outcome: {describe_label('unsteady')}" in page.text
    assert "budget_reached" not in page.text


def test_our_script_writes_no_markup():
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function", own_script())


def test_the_overview_is_whole_without_a_script(write_page):
    rows = [
        *over_sessions([(200.0, 100.0)] * 3, gpu="h200"),
        *over_sessions([(200.0, 250.0)] * 3, gpu="h100", verdict="slower"),
        cell(gpu="h100", candidate="softmax/broken", status="incorrect_values", fault="candidate", message="3 of 9"),
    ]
    text = read(write_page(tables(rows))).text
    for said in ("67 %", "1.26×", "▲ 2.00×", "▼ 0.80×", "incorrect values", "# of #", "A 100 %", "pass on every GPU"):
        assert said in text


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([], "These tables hold no results."),
        ([cell(status="timeout", fault="candidate")], "Nothing was timed."),
        ([cell(baseline_median_ns=2.0, candidate_median_ns=1.0)], "only one GPU (h200)"),
        ([cell()], "Nothing failed."),
        ([cell(status="timeout", fault="candidate", expect="timeout")], "declared to fail in this way"),
        ([cell(candidate="ядро/内核", status="timeout", fault="candidate", message="нет ответа")], "нет ответа"),
        (
            [cell(baseline_median_ns=2.0, candidate_median_ns=0.0, speedup=float("inf"))],
            "1 speed-up of zero or infinity",
        ),
    ],
    ids=["empty", "failed", "one-gpu", "fine", "controls", "letters", "zero"],
)
def test_report_of_few_results_states_what_is_missing(write_page, rows, said):
    assert said in read(write_page(tables(rows))).text


def test_missing_chart_library_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    with pytest.raises(UsageError, match="vl-convert-python") as caught:
        chart_library()
    assert "pip install 'kernel-matrix[report]'" in str(caught.value)


def test_chart_library_is_bundled_once(tmp_path, monkeypatch):
    vl_convert = pytest.importorskip("vl_convert", reason="vl-convert-python is not installed (the `report` extra)")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(vl_convert, "javascript_bundle", lambda: "first")
    assert chart_library() == "(() => {first\n})();"
    monkeypatch.setattr(vl_convert, "javascript_bundle", lambda: "second")
    assert chart_library() == "(() => {first\n})();"
    monkeypatch.setattr(vl_convert, "__version__", "999")
    assert chart_library() == "(() => {second\n})();"


def test_chart_library_needs_no_cache(monkeypatch):
    vl_convert = pytest.importorskip("vl_convert", reason="vl-convert-python is not installed (the `report` extra)")
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/none")
    monkeypatch.setattr(vl_convert, "javascript_bundle", lambda: "first")
    assert chart_library() == "(() => {first\n})();"


def gpus_rows(**further):
    return [
        row
        for number, (gpu, us) in enumerate((("h200", 100.0), ("h100", 125.0)))
        for problem, factor in (("softmax", 1.0), ("gelu", 1.1 + number))
        for row in over_sessions(
            [(200e3, us * factor * 1e3)] * 2,
            **{"gpu": gpu, "problem": problem, "candidate": f"{problem}/one", "category": problem, **further},
        )
    ]


def test_page_of_two_gpus_answers_how_much_faster(write_page):
    page = read(write_page(tables(gpus_rows())))
    assert "h200 is 1.73× (95 % interval" in page.text
    assert "h200 against h100: candidates" in page.text
    assert page.names.count("svg") == 1
    assert page.names.count("circle") == 3  # all, and two categories


def test_page_of_two_gpus_plots_what_limits(write_page):
    page = read(write_page(tables(gpus_rows(flops=1e5, bytes=1e8))))
    assert "memory-bound" in page.text
    assert page.names.count("circle") == 4


def test_page_of_three_gpus_plots_first_against_others(write_page):
    page = read(write_page(tables([*gpus_rows(), *gpus_rows(gpu="a100")[-4:]])))
    assert "h200 against the others" in page.text
    assert "More pairs" in page.text
    assert page.names.count("svg") == 3


def test_page_of_one_gpu_compares_no_gpus(write_page):
    page = read(write_page(tables([row for row in gpus_rows() if row["gpu"] == "h200"])))
    assert "svg" not in page.names
    assert "GPU against GPU" not in page.text


def test_page_plots_times_over_numbers_of_ranks(write_page):
    rows = [
        row
        for ranks in (2, 4)
        for row in timed([100.0 * ranks] * 3, problem="all_reduce", ranks=ranks, cell_id=f"{ranks}")
    ]
    page = read(write_page(tables(rows)))
    assert "Over numbers of ranks" in page.text
    assert "Over numbers of ranks" not in read(write_page(tables(rows[:3]))).text


def test_page_of_gpus_without_common_work_compares_none(write_page):
    page = read(write_page(tables([*gpus_rows()[:2], *gpus_rows()[-2:]])))
    assert "GPU against GPU" not in page.text
