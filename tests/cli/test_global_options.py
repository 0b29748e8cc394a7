"""Options of all verbs, as other command lines have them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from kernel_matrix.cli import build_app, global_options
from kernel_matrix.cli.global_options import Verbosity, verbosity
from kernel_matrix.cli.help_examples import EXAMPLES
from kernel_matrix.version import __version__

ROOT = Path(__file__).parents[2]


def said(*arguments):
    return CliRunner().invoke(build_app(), arguments)


def test_version_is_an_option_too():
    done = said("--version")
    assert (done.exit_code, done.stdout) == (0, f"kernel-matrix {__version__}\n")


@pytest.mark.parametrize("verb", [(), ("results",), ("images", "list")])
def test_help_is_asked_by_one_letter_too(verb):
    assert said(*verb, "-h").stdout == said(*verb, "--help").stdout != ""


@pytest.mark.parametrize(
    ("arguments", "level"),
    [
        (("probe",), Verbosity.NORMAL),
        (("-q", "probe"), Verbosity.QUIET),
        (("probe", "-q"), Verbosity.QUIET),
        (("probe", "--verbose"), Verbosity.VERBOSE),
        (("-q", "probe", "-v"), Verbosity.VERBOSE),
    ],
)
def test_verbosity_stands_before_or_after_the_verb(arguments, level):
    app, seen = typer.Typer(), []
    global_options.register(app)

    @app.command()
    def probe() -> None:
        seen.append(verbosity())

    global_options.give_to_every_verb(app)
    assert CliRunner().invoke(app, arguments).exit_code == 0
    assert seen == [level]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_exist_for_shells(shell, monkeypatch):
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
    done = said("--show-completion", shell)
    assert done.exit_code == 0
    assert f"complete_{shell}" in done.stdout


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("run --sandbox pro", ["process"]),
        ("run --filter d", ["dtype="]),
        ("run --filter verd", []),
        ("nightly --filter verd", []),
        ("results --filter verd", ["verdict=", "verdict_reason="]),
        ("try mine.py --dtype fp8", ["fp8_e4m3", "fp8_e5m2"]),
        ("try mine.py --problem softma", ["softmax", "softmax_backward"]),
    ],
)
def test_values_are_completed(tmp_path, line, words):
    asked = {"COMP_WORDS": f"kernel-matrix {line}", "COMP_CWORD": str(len(line.split()))}
    completed = subprocess.run(
        (sys.executable, "-c", "import sys, kernel_matrix.cli as c; sys.argv = ['kernel-matrix']; c.main()"),
        check=False,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT / "runner"), "_KERNEL_MATRIX_COMPLETE": "complete_bash", **asked},
    )
    assert (completed.stdout.split(), completed.stderr) == (words, "")


def test_help_lists_the_variables_of_the_page_of_commands():
    page = (ROOT / "docs" / "reference" / "commands.md").read_text(encoding="utf-8")
    documented = set(re.findall(r"^\| `(KERNEL_MATRIX_\w+)`", page, re.MULTILINE))
    assert set(re.findall(r"KERNEL_MATRIX_\w+", said("--help").stdout)) == documented != set()


@pytest.mark.parametrize("verb", EXAMPLES)
def test_examples_are_command_lines_that_parse(verb):
    shown = said(*verb.split(), "--help")
    assert shown.exit_code == 0
    known = shown.stdout.partition("Examples:")[0]
    for line in EXAMPLES[verb]:
        assert f"  kernel-matrix {line}\n" in shown.stdout
        assert line.split()[: len(verb.split())] == verb.split()
        options = re.findall(r"(?<= )--?[a-z][a-z-]*", re.sub(r" (--sort) -\w+", r" \1", line))
        assert not [option for option in options if not re.search(rf"(^| ){option}\b(?!-)", known, re.MULTILINE)]
