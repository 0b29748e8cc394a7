"""``kernel-matrix report``."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from kernel_matrix.results.store import RecordStore
from tests.analysis.made import over_sessions, write
from tests.cli.terminal import piped
from tests.results.factory import cell_id, make_record, make_trace, traced


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    for name, ns in (("old", 100.0), ("new", 150.0)):
        rows = [
            row
            for candidate in ("a", "b")
            for row in over_sessions([(200.0 + n / 10, ns + n / 10) for n in range(5)], candidate=candidate)
        ]
        write(tmp_path / name, rows)
    write(tmp_path / "empty", [])
    return tmp_path


def report(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return piped(folder, "report", *arguments)


def test_a_page_is_written_whole_and_its_place_told(lab: Path) -> None:
    pytest.importorskip("vl_convert", reason="vl-convert-python is not installed (the `report` extra)")
    done = report(lab, "new", "--out", "there/page.html", "--title", "Tonight")
    assert (done.returncode, done.stdout) == (0, "")
    assert "there/page.html (" in done.stderr
    page = (lab / "there" / "page.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert page.endswith("</html>\n")
    assert "<title>Tonight</title>" in page
    assert [file.name for file in (lab / "there").iterdir()] == ["page.html"]


@pytest.mark.parametrize(
    ("arguments", "start"), [(("--format", "md"), "## made, 01 March 2026"), (("--format", "text"), "made, 01 March")]
)
def test_text_and_markdown_go_to_the_terminal(lab: Path, arguments: tuple[str, ...], start: str) -> None:
    done = report(lab, "new", *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(start)
    assert "2 cells: 2 of 2 that count are correct (100 %)" in done.stdout


def test_the_ending_of_the_file_is_the_format(lab: Path) -> None:
    assert report(lab, "new", "--out", "pull.md").returncode == 0
    assert (lab / "pull.md").read_text(encoding="utf-8").startswith("## made")


def test_earlier_results_are_compared_with(lab: Path) -> None:
    done = report(lab, "new", "--against", "old", "--format", "text")
    assert "Against old: 2 regression" in done.stdout


def test_empty_tables_are_told_to_be(lab: Path) -> None:
    done = report(lab, "empty", "--format", "text")
    assert (done.returncode, "These tables hold no results." in done.stdout) == (0, True)


def test_a_site_is_written_into_a_folder(lab: Path) -> None:
    pytest.importorskip("vl_convert", reason="vl-convert-python is not installed (the `report` extra)")
    done = report(lab, "new", "--site", "pages")
    assert (done.returncode, done.stdout) == (0, "")
    assert "pages/index.html; python -m http.server -d pages shows it" in done.stderr
    assert sorted(str(file.relative_to(lab / "pages")) for file in (lab / "pages").rglob("*.*")) == [
        "index.html",
        "rows/0000.json",
    ]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("new", "--site", "pages", "--out", "page.html"), 2, "--site writes HTML into a folder"),
        (("new", "--matrix", "absent.toml"), 2, "there is no matrix absent.toml"),
        (("new", "--format", "pdf"), 2, "html, md, text"),
        (("absent", "--format", "md"), 2, "absent"),
        (("new", "--format", "md", "--out", "/proc/none/x.md"), 4, "cannot be written"),
    ],
)
def test_what_cannot_be_done_is_one_clear_error(lab: Path, arguments: tuple[str, ...], code: int, said: str) -> None:
    done = report(lab, *arguments)
    assert (done.returncode, "Traceback" in done.stderr) == (code, False)
    assert said in done.stderr


def test_a_page_of_result_folders_has_their_telemetry(lab: Path) -> None:
    pytest.importorskip("vl_convert", reason="vl-convert-python is not installed (the `report` extra)")
    RecordStore(lab / "results" / "nightly").save(traced(make_record(cell_id(1))), make_trace(7))
    done = report(lab, "results", "--out", "page.html")
    assert done.returncode == 0, done.stderr
    found = re.search(r'id="data"[^>]*>(.*?)</script>', (lab / "page.html").read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    assert json.loads(found[1])["looks"]["rows"] == 7
