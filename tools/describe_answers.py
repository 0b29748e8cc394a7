"""Write the answers of commands into pages of the documentation, so that a reader can check every number of them.

Run it after a change of an analysis, of a set of results or of such a page: ``python -m tools.describe_answers``. With
``--check`` it writes nothing: it names the answers that are not current, and exits 1 if there is one.

A page has a block with one command, and after it the place of the answer::

    ```console
    $ kernel-matrix analyze gpus results/example-two-gpus.kmz --format markdown
    ```

    <!-- answer -->
    <!-- /answer -->

The command may go on over several lines, joined by backslashes. What stands between the marks becomes its standard
output; nothing else on the page changes. Give ``--sort`` where a question does not fix the order of its rows.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from typer.testing import CliRunner

import kernel_matrix
from kernel_matrix.cli import build_app
from kernel_matrix.errors import KernelMatrixError

ROOT = Path(__file__).resolve().parents[1]
PAGES = tuple(ROOT / "docs" / "explanation" / f"{name}.md" for name in ("two-models", "published-matrix"))

BEGIN = "<!-- answer -->"
END = "<!-- /answer -->"

JOINING_VERBS = ("analyze", "audit")
"""Verbs that merge all sets they are given into one; a record that is in two of them counts once."""
TABLE_VERBS = (*JOINING_VERBS, "compare", "results")
"""Verbs that read tables only. Others, such as ``report`` and ``pairs``, look for records and traces too."""

_ENVIRONMENT = {"NO_COLOR": "1", "COLUMNS": "200"}
_FENCE = re.compile(r"(`{3,})([^`]*)")
_CONTINUED = re.compile(r"\s*\\\n\s*")
_COMMAND = re.compile(r"\$ (kernel-matrix [^\n]*--format[ =]markdown\b[^\n]*)")


class PageError(Exception):
    """A page has wrong marks, or a command on it fails."""


@dataclass(frozen=True)
class AnswerBlock:
    """A command on a page and the place of its answer."""

    command: str
    """On one line, without the prompt."""
    text: str
    """What stands between the marks."""
    place: str
    """Page and line of the mark before the answer."""
    first: int
    """Index of the line after that mark."""
    last: int
    """Index of the line with the mark after the answer."""


@dataclass(frozen=True)
class TableShell:
    """Runs commands in this process; a set that several of them read is merged once."""

    root: Path
    """The folder in which commands run."""
    folder: Path
    """The folder for merged tables; its path is in no answer."""
    _merged: dict[tuple[str, ...], Path] = field(default_factory=dict)

    def answer(self, block: AnswerBlock) -> str:
        """Return the standard output of a block's command.

        Raises:
            PageError: It ends with a code other than 0.
        """
        _, *words = shlex.split(block.command)
        with _working_in(self.root):
            quick = words
            with suppress(KernelMatrixError):  # the command itself says why its set cannot be read
                quick = self._on_tables(words)
            code, output, errors = _run(quick)
            if quick != words and (code != 0 or str(self.folder) in output):
                code, output, errors = _run(words)  # so that messages name the set as the page does
        if code != 0:
            raise PageError(f"{block.place}: `{block.command}` ended with code {code}:\n{output}{errors}")
        return output

    def _on_tables(self, words: list[str]) -> list[str]:
        """Return ``words`` with merged tables in place of sets, if the verb reads tables only."""
        verb = words[0]
        sets = [word for word in words[1:] if _is_set(Path(word))]
        if verb not in TABLE_VERBS or not sets:
            return words
        if verb not in JOINING_VERBS:
            return [self._tables(word) if word in sets else word for word in words]
        first = words.index(sets[0])
        return [*words[:first], self._tables(*sets), *(word for word in words[first:] if word not in sets)]

    def _tables(self, *sets: str) -> str:
        """Return the folder with the tables of ``sets``."""
        if sets not in self._merged:
            out = self.folder / str(len(self._merged))
            kernel_matrix.merge(sets, out)
            self._merged[sets] = out
        return str(self._merged[sets])


@contextmanager
def open_shell(root: Path = ROOT) -> Iterator[TableShell]:
    """Provide a shell whose commands run in ``root``; its tables are removed at the end."""
    with tempfile.TemporaryDirectory(prefix="kernel-matrix-") as folder:
        yield TableShell(root, Path(folder))


def page_text(text: str, name: str, shell: TableShell) -> str:
    """Return the page that is called ``name`` with its answers made anew.

    Raises:
        PageError: A mark is wrong, or a command fails; with the line.
    """
    lines = text.splitlines(keepends=True)
    for block in reversed(answer_blocks(text, name)):
        lines[block.first : block.last] = [shell.answer(block)]
    return "".join(lines)


def answer_blocks(text: str, name: str) -> list[AnswerBlock]:
    """Return the commands with a place for their answer, in the order of the page.

    Raises:
        PageError: A mark has no command before it, or its other half is missing; with the line.
    """
    lines = text.splitlines(keepends=True)
    found: list[AnswerBlock] = []
    command = ""
    number = 0
    while number < len(lines):
        line = lines[number].strip()
        place = f"{name}:{number + 1}"
        where = f"{place}: {line}"
        if fence := _FENCE.fullmatch(line):
            end = _closing(lines, number, fence[1], where)
            command = _command_of(lines[number + 1 : end]) if fence[2] == "console" else ""
            number = end
        elif line == BEGIN:
            if not command:
                raise PageError(f"{where} has no block with one `kernel-matrix … --format markdown` right before it")
            end = _closing(lines, number, END, where)
            found.append(AnswerBlock(command, "".join(lines[number + 1 : end]), place, number + 1, end))
            command, number = "", end
        elif line == END:
            raise PageError(f"{where} has no {BEGIN} before it")
        elif line:
            command = ""
        number += 1
    return found


def _closing(lines: Sequence[str], opened: int, mark: str, where: str) -> int:
    """Return the index of the line that closes what line ``opened`` opens."""
    for index in range(opened + 1, len(lines)):
        line = lines[index].strip()
        if line == mark:
            return index
        if line == BEGIN and mark == END:
            break
    raise PageError(f"{where} is not closed by {mark}")


def _command_of(block: Sequence[str]) -> str:
    """Return the command of a block that has one and nothing else; empty for any other block."""
    command = _COMMAND.fullmatch(_CONTINUED.sub(" ", "".join(block)).strip())
    return command[1] if command else ""


def _is_set(path: Path) -> bool:
    return (path / "records").is_dir() or (path.suffix == ".kmz" and path.is_file())


def _run(words: list[str]) -> tuple[int, str, str]:
    """Return the exit code, the standard output and the messages of ``kernel-matrix`` with these words."""
    done = CliRunner().invoke(build_app(), words, env=_ENVIRONMENT)
    if isinstance(done.exception, KernelMatrixError):
        return done.exception.exit_code, done.stdout, f"{done.stderr}error: {done.exception}"
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.stdout, done.stderr


@contextmanager
def _working_in(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def main(arguments: Sequence[str] | None = None, pages: Sequence[Path] = PAGES, root: Path = ROOT) -> int:
    """Write or check the pages; return the exit code."""
    parser = argparse.ArgumentParser(description="Write the answers of commands into pages of the documentation.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if an answer is not current")
    check = parser.parse_args(arguments).check
    update = _report_stale if check else _write
    try:
        with open_shell(root) as shell:
            stale = [update(page, str(page.relative_to(root)), shell) for page in pages]
    except PageError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return int(check and any(stale))


def _write(page: Path, name: str, shell: TableShell) -> bool:
    """Write a page if it changes; return whether it does."""
    text = page.read_bytes().decode()
    current = page_text(text, name, shell)
    if current != text:
        page.write_bytes(current.encode())
    return current != text


def _report_stale(page: Path, name: str, shell: TableShell) -> bool:
    """Print the answers on a page that are not current; return whether there are any."""
    text = page.read_bytes().decode()
    blocks = zip(answer_blocks(text, name), answer_blocks(page_text(text, name, shell), name), strict=True)
    stale = [block for block, current in blocks if block.text != current.text]
    for block in stale:
        print(f"{block.place}: the answer of `{block.command}` is not current")
    return bool(stale)


if __name__ == "__main__":
    sys.exit(main())
