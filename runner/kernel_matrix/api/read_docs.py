"""The documentation that comes with the package."""

from __future__ import annotations

from pathlib import Path

from kernel_matrix.bundled import bundled_path
from kernel_matrix.errors import UsageError, suggestion

__all__ = ["documentation_pages", "read_documentation"]


def documentation_pages() -> dict[str, str]:
    """Return name → title of every page of the documentation, sorted by name."""
    return {path.stem: _title(path) for path in sorted(_pages().values(), key=lambda path: path.stem)}


def read_documentation(page: str) -> str:
    """Return a page as Markdown.

    Raises:
        UsageError: There is no page of that name.
    """
    pages = _pages()
    if page not in pages:
        what = f"the documentation has no page {page!r}{suggestion(page, list(pages))}"
        raise UsageError(what, next_step="kernel-matrix docs lists all pages")
    return pages[page].read_text(encoding="utf-8")


_NO_PAGES = ("examples/", "security.md", "contributing.md", "changelog.md")
"""Below ``docs``: files of examples, and pages of the site that only include files from outside."""


def _pages() -> dict[str, Path]:
    root = bundled_path("docs")
    return {
        path.stem: path for path in root.rglob("*.md") if not path.relative_to(root).as_posix().startswith(_NO_PAGES)
    }


def _title(path: Path) -> str:
    with path.open(encoding="utf-8") as file:
        return next((line.lstrip("# ").strip() for line in file if line.startswith("# ")), path.stem)
