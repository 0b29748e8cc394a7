"""The documentation as a site, built as a release would."""

from __future__ import annotations

import pytest

import kernel_matrix
from tests.docs.snippets import PAGES, ROOT
from tests.own_python import run_python

UNSEEN = ("README.md", "CONTRIBUTING.md")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, built with every warning an error."""
    pytest.importorskip("sphinx", reason="Sphinx is not installed (the `dev` extra)")
    folder = tmp_path_factory.mktemp("site")
    command = ("-m", "sphinx", "-q", "-W", "--keep-going", "-d", str(folder / "doctrees"), "docs", str(folder / "html"))
    run_python(*command, packages=str(ROOT / "runner"))
    return folder / "html"


def test_every_page_is_built_without_a_warning(site):
    pages = [path.relative_to(ROOT / "docs").with_suffix(".html") for path in PAGES if path.name not in UNSEEN]
    assert [page for page in pages if not (site / page).is_file()] == []


def test_every_function_and_class_of_the_api_is_described(site):
    page = (site / "reference" / "functions.html").read_text()
    missing = [name for name in kernel_matrix.__all__ if f'id="kernel_matrix.{name}"' not in page]
    assert missing == ["__version__"]


def test_site_loads_nothing_from_elsewhere(site):
    for path in site.rglob("*.html"):
        text = path.read_text()
        assert 'src="http' not in text, path
        assert 'rel="stylesheet" href="http' not in text, path
