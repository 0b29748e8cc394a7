"""The static site: every row in files beside the page, read as they are needed."""

from __future__ import annotations

import json
import re
import threading
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from kernel_matrix.report import cell_choice, site
from kernel_matrix.report.contents import gather
from tests.analysis.made import cell, frame, over_sessions, tables
from tests.report.conftest import MADE_AT

pytest.importorskip("vl_convert", reason="vl-convert-python is not installed (the `report` extra)")


def timed(problem, number):
    medians = [(1000.0, 500.0 + number)] * 2
    return over_sessions(medians, problem=problem, candidate=f"{problem}/c{number}", record=number)


def some_rows(problems=3, each=4):
    return [row for p in range(problems) for n in range(each) for row in timed(f"p{p}", each * p + n)]


def write(folder, made):
    contents, found = gather(made, title="made", made_at=MADE_AT, folders=["tables"])
    return site.write_site(folder, contents, made, found)


def parts(folder):
    return [json.loads(file.read_text(encoding="utf-8")) for file in sorted((folder / "rows").iterdir())]


def words(part, name):
    column = next(one for one in part["cells"]["columns"] if one["name"] == name)
    codes = column.get("codes") or [column["all"]] * part["cells"]["rows"]
    return [column["words"][code] for code in codes]


def test_all_rows_are_in_files_of_whole_problems(tmp_path, monkeypatch):
    monkeypatch.setattr(site, "MOST_ROWS", 8)
    monkeypatch.setattr(cell_choice, "MOST_CELLS", 2)
    index = write(tmp_path, tables(some_rows()))
    assert [part["cells"]["rows"] for part in parts(tmp_path)] == [8, 4]
    assert words(parts(tmp_path)[1], "problem") == ["p2"] * 4
    data = json.loads(re.search(r'id="data"[^>]*>(.*?)</script>', index.read_text(encoding="utf-8"), re.DOTALL)[1])
    assert data["cells"]["rows"] == 2
    assert data["site"] == {
        "parts": [{"file": "rows/0000.json", "rows": 8}, {"file": "rows/0001.json", "rows": 4}],
        "problems": {"p0": 0, "p1": 0, "p2": 1},
    }


def test_samples_are_with_the_rows_of_their_file(tmp_path, monkeypatch):
    monkeypatch.setattr(site, "MOST_ROWS", 4)
    made = tables(some_rows())
    sample = {"session": 0, "workload": "default", "role": "candidate", "contestant": "candidate", "regime": "cold"}
    samples = [
        {**sample, "record": n, "calls_per_sample": 1, "block": 0, "index": 0, "device_ns": n} for n in range(12)
    ]
    write(tmp_path, replace(made, samples=frame("samples", samples).lazy()))
    values = {
        column["name"]: column["values"] for column in parts(tmp_path)[2]["samples"]["columns"] if "values" in column
    }
    assert values["row"] == [0, 1, 2, 3]
    assert values["us"] == [0.01, 0.011, 0.008, 0.009]  # by name: p2/c10 comes before p2/c8


def test_rows_of_an_older_site_are_removed(tmp_path):
    (tmp_path / "rows").mkdir()
    for name in ("0007.json", "mine.json"):
        (tmp_path / "rows" / name).write_text("{}")
    write(tmp_path, tables(some_rows()))
    assert sorted(file.name for file in (tmp_path / "rows").iterdir()) == ["0000.json", "mine.json"]


def test_empty_tables_are_a_site_without_rows(tmp_path):
    assert "hold no results" in write(tmp_path, tables([])).read_text(encoding="utf-8")
    assert not (tmp_path / "rows").exists()


def test_only_a_site_may_read_and_only_from_its_server(tmp_path, write_page):
    policy = re.compile(r'http-equiv="Content-Security-Policy" content="([^"]*)"')
    single, of_site = (policy.search(file.read_text(encoding="utf-8"))[1] for file in (
        write_page(tables([cell()])), write(tmp_path / "site", tables([cell()])),
    ))  # fmt: skip
    assert "connect-src" not in single
    assert of_site.replace("connect-src &#x27;self&#x27;; ", "") == single


@pytest.fixture
def served(tmp_path, monkeypatch):
    monkeypatch.setattr(site, "MOST_ROWS", 4)
    monkeypatch.setattr(cell_choice, "MOST_CELLS", 2)
    write(tmp_path, tables(some_rows()))

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/index.html"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_site_reads_the_rows_that_a_page_needs(browser, served):
    from playwright.sync_api import expect  # noqa: PLC0415  # the fixture has found that it is installed

    tab = browser.new_page()
    wrong, asked = [], []
    tab.on("console", lambda said: wrong.append(said.text) if said.type in ("error", "warning") else None)
    tab.on("pageerror", lambda error: wrong.append(str(error)))
    tab.on("request", lambda request: asked.append(request.url.rsplit("/")[-1]))
    count = tab.locator("#page .count").first
    try:
        tab.goto(f"{served}#cells")
        expect(count).to_have_text("2 rows")
        assert [name for name in asked if name.endswith(".json")] == []
        tab.evaluate("location.hash = 'cells/problem=p1'")
        expect(count).to_have_text("4 rows")
        tab.get_by_role("link", name="c5", exact=True).first.click()
        expect(tab.locator("#page h2")).to_have_text("p1/c5")
        tab.evaluate("location.hash = 'problem/p2'")
        expect(tab.locator("#page h2")).to_have_text("p2")
        tab.evaluate("location.hash = 'cells'")
        tab.get_by_label("Rows", exact=True).select_option("all 12")
        expect(count).to_have_text("12 rows")
        tab.evaluate("location.hash = 'cells'")
        expect(count).to_have_text("2 rows")
    finally:
        tab.close()
    assert [name for name in asked if name.endswith(".json")] == ["0001.json", "0002.json", "0000.json"]
    assert wrong == []


def test_a_site_from_disk_says_that_it_needs_a_server(browser, tmp_path):
    path = write(tmp_path, tables(some_rows()))
    tab = browser.new_page()
    try:
        tab.goto(f"{path.as_uri()}#problem/p0")
        tab.get_by_text("A browser reads them from a web server only").wait_for()
    finally:
        tab.close()
