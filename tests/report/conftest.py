"""A browser to open pages with, if this machine has one."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from kernel_matrix.analysis.tables import Tables
from kernel_matrix.report.contents import ReportContents, gather

MADE_AT = datetime(2026, 3, 2, 8, tzinfo=timezone.utc)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Headless Chromium, driven by playwright, whose event loop runs in this thread until the end of the module."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (the `dev` extra)")
    pytest.importorskip("vl_convert", reason="vl-convert-python is not installed (the `report` extra)")
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        pytest.skip("no chromium on this machine (Debian package `chromium`)")
    with sync_api.sync_playwright() as play:
        started = play.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def gathered() -> Callable[..., ReportContents]:
    """Gather the contents of tables under a title."""

    def gathered_of(tables: Tables, title: str = "made", **further: Any) -> ReportContents:
        contents, _ = gather(tables, title=title, made_at=MADE_AT, folders=["tables"], **further)
        return contents

    return gathered_of


@pytest.fixture
def write_page(tmp_path: Path) -> Callable[..., Path]:
    """Write the page of tables, as the command does."""
    pytest.importorskip("vl_convert", reason="vl-convert-python is not installed (the `report` extra)")
    from kernel_matrix.report.page import page  # noqa: PLC0415  # needs the extra

    def write(tables: Tables, title: str = "made", **further: Any) -> Path:
        contents, found = gather(tables, title=title, made_at=MADE_AT, folders=["tables"], **further)
        path = tmp_path / "report.html"
        path.write_text(page(contents, tables, found), encoding="utf-8")
        return path

    return write
