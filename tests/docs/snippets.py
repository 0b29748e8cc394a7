"""Code blocks of the documentation: found, and run as a reader would.

A page's blocks run in order, in one folder. Comments before a block say more::

    <!-- example: in an empty folder -->    a new folder
    <!-- example: in a checkout -->         a new folder that looks like a checkout, as at the start of a page
    <!-- example: exit 5 -->                the last command ends with this code
    <!-- example: not run, REASON -->       needs what a test has not: its commands are parsed only
    <!-- examples: not run, REASON -->      the same for the whole page, at its top

A ``console`` block has commands after ``$ ``, each with its output. A line ``…`` stands for any lines, and ``…`` in a
line for any text. Commands without output may print anything.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = (
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(
        path
        for path in (ROOT / "docs").rglob("*.md")
        if "examples" not in path.parts and path.name not in ("security.md", "contributing.md", "changelog.md")
    ),
)

_BLOCK = re.compile(
    r"(?P<comments>(?:^ *<!-- example: [^\n]* -->\n)*)^(?P<indent> *)```(?P<language>[a-z]*)\n(?P<text>.*?)^ *```$",
    re.MULTILINE | re.DOTALL,
)
_OF_PAGE = re.compile(r"\A<!-- examples: (.*) -->$", re.MULTILINE)
_COMMENT = re.compile(r"<!-- example: (.*) -->")
_OPERATORS = {"|", "||", "&&", ";", ">", ">>", "<", "&"}


@dataclass(frozen=True)
class Command:
    """A command of a ``console`` block."""

    text: str
    output: str


@dataclass(frozen=True)
class Snippet:
    """A code block of a page."""

    page: str
    line: int
    language: str
    text: str
    comments: tuple[str, ...] = field(default=())

    @property
    def why_not_run(self) -> str:
        """The reason; empty for a block that is run."""
        return next((c.removeprefix("not run, ") for c in self.comments if c.startswith("not run")), "")

    @property
    def exit_code(self) -> int:
        """Exit code of the last command."""
        return next((int(c.removeprefix("exit ")) for c in self.comments if c.startswith("exit ")), 0)

    @property
    def new_folder(self) -> str:
        """The kind of new folder that it begins in: ``empty``, ``checkout``, or nothing for the present one."""
        kinds = {"in an empty folder": "empty", "in a checkout": "checkout"}
        return next((kinds[comment] for comment in self.comments if comment in kinds), "")

    @property
    def commands(self) -> list[Command]:
        """The commands, each with the output below it."""
        found: list[tuple[str, list[str]]] = []
        for line in self.text.splitlines():
            if line.startswith("$ "):
                found.append((line[2:], []))
            elif found and found[-1][0].endswith("\\"):
                found[-1] = (f"{found[-1][0]}\n{line}", [])
            elif found:
                found[-1][1].append(line)
        return [Command(command, "\n".join(lines).rstrip("\n")) for command, lines in found]


def snippets(page: Path) -> list[Snippet]:
    """Return the code blocks of a page."""
    text = page.read_text(encoding="utf-8")
    return [
        Snippet(
            page=str(page.relative_to(ROOT)),
            line=text.count("\n", 0, match.start("language")) + 1,
            language=match["language"],
            text=re.sub(rf"^ {{{len(match['indent'])}}}", "", match["text"], flags=re.MULTILINE),
            comments=(*_COMMENT.findall(match["comments"]), *_OF_PAGE.findall(text)),
        )
        for match in _BLOCK.finditer(text)
    ]


def invocations(command: str) -> Iterator[list[str]]:
    """Yield the arguments of each ``kernel-matrix`` in a shell's command."""
    lexer = shlex.shlex(command.replace("\\\n", " "), posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    lexer.commenters = "#"
    current: list[str] | None = None
    for word in lexer:
        if word in _OPERATORS:
            if current is not None:
                yield current
            current = None
        elif current is not None:
            current.append(word)
        elif word.rpartition("/")[2] == "kernel-matrix":
            current = []
    if current is not None:
        yield current


def fits(printed: str, shown: str) -> bool:
    """Return whether a page shows what was printed; trailing blanks and the ends of columns may differ."""
    pattern = "".join(
        r"(?:.*\n)*?" if line.strip() == "…" else f"{_line_pattern(line)}\n" for line in shown.splitlines()
    )
    return (
        re.fullmatch(pattern, "".join(f"{line.rstrip()}\n" for line in printed.rstrip("\n").splitlines())) is not None
    )


def _line_pattern(line: str) -> str:
    parts = (r"\s+".join(map(re.escape, re.split(r"\s+", part))) for part in line.rstrip().split("…"))
    return ".*".join(parts)
