"""Takes the pictures of the report's page: ``python docs/pictures/shoot.py``; needs Chromium and the `dev` extra."""

# ruff: noqa: INP001  # a script, not a module of a package

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

import kernel_matrix

HERE = Path(__file__).parent
RESULTS = HERE.parents[1] / "results" / "example-two-gpus.kmz"
SIZE = {"width": 1280, "height": 860}


def main() -> None:
    """Write a report of the example with two GPUs, and take a picture of its first screen."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        page = Path(folder) / "report.html"
        kernel_matrix.write_report(RESULTS, page, title="Twelve operators on two GPUs")
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        shown = browser.new_page(viewport=SIZE, color_scheme="light")
        shown.goto(page.as_uri())
        shown.wait_for_load_state("networkidle")
        shown.screenshot(path=HERE / "report.png")
        browser.close()


if __name__ == "__main__":
    main()
