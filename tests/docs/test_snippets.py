"""Every command and every snippet of the documentation does what its page says."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from kernel_matrix.cli import build_app
from kernel_matrix.toml_text import parse_toml
from tests.baddays.field import PRELOADED
from tests.docs.snippets import PAGES, ROOT, Snippet, fits, invocations, snippets
from tests.sim.preloaded import warm_sources
from tests.warm_command import command_text

CHECKOUT = ("matrix.toml", "problems", "images", "schemas", "Makefile", "docs", "benchmarks")
"""What a reader in a checkout has, beside the example results; also ``tables``, which are merged from these."""
LIMIT_S = 240
ALL = [snippet for page in PAGES for snippet in snippets(page)]


def by_page(*languages: str) -> list[object]:
    """Parameters: the blocks of each page that has any."""
    found: dict[str, list[Snippet]] = {}
    for snippet in ALL:
        if snippet.language in languages:
            found.setdefault(snippet.page, []).append(snippet)
    return [pytest.param(blocks, id=page) for page, blocks in found.items()]


class Reader:
    """Somebody who follows a page: a shell in a folder."""

    def __init__(self, folder: Path, tables: Path) -> None:
        self.home = folder
        self.folders = 0
        bin_ = folder / "bin"
        bin_.mkdir()
        program = bin_ / "kernel-matrix"
        program.write_text(command_text(PRELOADED))
        program.chmod(0o755)
        (bin_ / "python").symlink_to(sys.executable)
        self.environment = {
            **os.environ,
            **warm_sources(),
            "PATH": f"{bin_}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT / "runner"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "HOME": str(folder),
            "NO_COLOR": "1",
            "DOCKER_HOST": "unix:///nonexistent/docker.sock",
        }
        for variable in ("XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME"):
            self.environment.pop(variable, None)
        self.tables = tables
        self.folder = self.new_folder(empty=False)

    def new_folder(self, *, empty: bool) -> Path:
        """Go to a new folder, empty or like a checkout."""
        self.folders += 1
        self.folder = self.home / f"work-{self.folders}"
        self.folder.mkdir()
        if not empty:
            self._fill()
        return self.folder

    def _fill(self) -> None:
        for name in CHECKOUT:
            source = ROOT / name
            if name == "problems":  # pages put candidates there
                shutil.copytree(source, self.folder / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                (self.folder / name).symlink_to(source)
        shutil.copytree(self.tables, self.folder / "tables")
        (self.folder / "results").mkdir()
        for example in (ROOT / "results").glob("*.kmz"):
            (self.folder / "results" / example.name).symlink_to(example)

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command in the folder."""
        return subprocess.run(
            command,
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )


@pytest.fixture
def reader(tmp_path, example_tables):
    return Reader(tmp_path, example_tables)


@pytest.mark.torch
@pytest.mark.timeout(900)
@pytest.mark.parametrize("blocks", by_page("console"))
def test_commands_of_a_page_do_what_it_says(reader, blocks):
    for snippet in blocks:
        if snippet.why_not_run:
            continue
        if snippet.new_folder:
            reader.new_folder(empty=snippet.new_folder == "empty")
        for number, command in enumerate(snippet.commands):
            if command.text.startswith("cd "):
                reader.folder = reader.folder / command.text[3:].strip()
                continue
            ran = reader.run("bash", "-c", command.text)
            where = f"{snippet.page}:{snippet.line}: {command.text}\n{ran.stdout}{ran.stderr}"
            wanted = snippet.exit_code if number == len(snippet.commands) - 1 else 0
            assert ran.returncode == wanted, where
            assert not command.output or fits(ran.stdout + ran.stderr, command.output), where


def test_commands_that_are_not_run_are_understood():
    app = typer.main.get_command(build_app())
    for snippet in ALL:
        if snippet.language == "console" and snippet.why_not_run:
            for command in snippet.commands:
                for arguments in invocations(command.text):
                    understand(app, arguments, f"{snippet.page}:{snippet.line}: {command.text}")


def understand(command: Any, arguments: list[str], where: str) -> None:
    """Parse a command line down to its verb; nothing is run."""
    if arguments[:1] and arguments[0].startswith("-"):  # an option of the program itself
        assert any(arguments[0] in one.opts for one in command.params), where
        return
    while hasattr(command, "commands"):
        assert arguments, where
        assert arguments[0] in command.commands, where
        name, *arguments = arguments
        command = command.commands[name]
    try:
        command.make_context(command.name, list(arguments)).close()
    except Exception as error:  # noqa: BLE001  # typer's own exceptions have no public home
        pytest.fail(f"{where}: {error}")


@pytest.mark.torch
@pytest.mark.timeout(600)
@pytest.mark.parametrize("blocks", by_page("python"))
def test_python_of_a_page_runs(reader, blocks):
    run = [snippet for snippet in blocks if not snippet.why_not_run]
    for snippet in blocks:
        compile(snippet.text, snippet.page, "exec")
    ran = reader.run(sys.executable, "-c", "\n".join(snippet.text for snippet in run))
    assert ran.returncode == 0, f"{blocks[0].page}: {ran.stderr}"


@pytest.mark.parametrize("blocks", by_page("toml"))
def test_toml_of_a_page_is_toml(blocks):
    for snippet in blocks:
        parse_toml(snippet.text.replace("…", ""))


def test_every_block_says_what_it_is():
    known = {"console", "python", "toml", "text", "yaml", "sh", "csv", "cpp", "sql"}
    unknown = [f"{s.page}:{s.line}: {s.language!r}" for s in ALL if s.language not in known]
    assert unknown == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_are_in_blocks_that_are_tested(page):
    lines = page.read_text().splitlines()
    loose = [line for line in lines if line.startswith(("    kernel-matrix ", "    $ "))]
    assert loose == []


def test_ellipsis_stands_for_lines_and_for_text():
    assert fits("a\nb\nc 12 d\n", "a\n…\nc … d")
    assert fits("one  two\n", "one two")
    assert not fits("a\nb\n", "a")
    assert not fits("c 12 e", "c … d")
