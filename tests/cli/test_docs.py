"""``kernel-matrix docs``: the documentation travels with the package."""

from __future__ import annotations

import re

from tests.cli.terminal import ROOT, piped


def test_every_page_is_listed_with_its_title(tmp_path):
    shown = dict(re.split(r" {2,}", line, maxsplit=1) for line in piped(tmp_path, "docs").stdout.splitlines())
    written = {path.stem for path in (ROOT / "docs").rglob("*.md")} - {"security", "contributing", "changelog"}
    assert written == shown.keys()
    assert shown["matrix"] == "matrix.toml"


def test_page_goes_into_a_pipe_as_it_is_written(tmp_path):
    (source,) = (ROOT / "docs").rglob("glossary.md")
    assert piped(tmp_path, "docs", "glossary").stdout == source.read_text()


def test_unknown_page_is_refused_with_the_closest_one(tmp_path):
    ran = piped(tmp_path, "docs", "matrx")
    assert ran.returncode == 2
    assert ran.stderr.splitlines() == [
        "error: the documentation has no page 'matrx'; did you mean 'matrix'?",
        "  → kernel-matrix docs lists all pages",
    ]


def test_every_page_that_a_message_names_exists():
    pages = {path.stem for path in (ROOT / "docs").rglob("*.md")}
    named = {
        page
        for path in (ROOT / "runner").rglob("*.py")
        for page in re.findall(r"kernel-matrix docs ([a-z]+)(?= [a-z]+)", path.read_text())
    }
    assert named - {"lists"}
    assert named - {"lists"} <= pages
