"""Write ``docs/reference/cli.md``, the reference of the command line, from the program itself.

Run it after a change of an option or of a help text: ``python -m tools.describe_cli``.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from kernel_matrix.cli import build_app

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "cli.md"
NAME = "kernel-matrix"


def page_text() -> str:
    """Return the whole page."""
    app = typer.main.get_command(build_app())
    lines = [
        "# Command line",
        "",
        "Written by `tools/describe_cli.py`. [Commands](commands.md) says what help texts do not.",
        "",
        *_sections(app, NAME),
    ]
    return "\n".join(lines).rstrip("\n") + "\n"


def _sections(command: Any, name: str) -> Iterator[str]:
    yield from _section(command, name)
    for verb, found in getattr(command, "commands", {}).items():
        if not found.hidden:
            yield from _sections(found, f"{name} {verb}")


def _section(command: Any, name: str) -> Iterator[str]:
    arguments = [_metavar(one) for one in command.params if one.param_type_name == "argument"]
    yield f"## {name}"
    yield ""
    yield from _help(command)
    yield "```text"
    yield " ".join((name, *(["COMMAND"] if hasattr(command, "commands") else []), "[OPTIONS]", *arguments))
    yield "```"
    yield ""
    rows = [_row(one) for one in command.params if not getattr(one, "hidden", False)]
    if rows:
        yield "| argument or option | means |"
        yield "| --- | --- |"
        yield from rows
        yield ""


def _help(command: Any) -> Iterator[str]:
    """Yield the help text; its indented lines, which are examples, become a block."""
    paragraphs = inspect.cleandoc(command.help or "").replace("\b\n", "").split("\n\n")
    for paragraph in paragraphs:
        if paragraph.startswith("  "):
            yield from ("```text", inspect.cleandoc(paragraph), "```")
        else:
            yield " ".join(paragraph.split())
        yield ""


def _row(parameter: Any) -> str:
    said = (getattr(parameter, "help", None) or "").replace("|", "\\|")
    default = _default(parameter)
    names = ", ".join(f"`{name}`" for name in _names(parameter))
    return f"| {names} | {said}{f' Default: `{default}`.' if default else ''} |"


def _names(parameter: Any) -> list[str]:
    if parameter.param_type_name == "argument":
        return [_metavar(parameter)]
    value = "" if parameter.is_flag else f" {_metavar(parameter)}"
    return [f"{name}{value}" for name in (*parameter.opts, *parameter.secondary_opts)]


def _metavar(parameter: Any) -> str:
    return str(parameter.metavar or parameter.name.upper())


def _default(parameter: Any) -> str:
    """Return the default where it says something; those of lists and flags do not."""
    value = parameter.default
    return (
        ""
        if value is None or isinstance(value, bool) or callable(value) or str(value) in ("", ".", "[]")
        else str(value)
    )


if __name__ == "__main__":
    PAGE.write_text(page_text(), encoding="utf-8")
