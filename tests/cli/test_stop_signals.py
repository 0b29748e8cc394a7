"""The first signal ends a verb cleanly, later ones do not interrupt that, and inherited ignoring is respected."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest

PROGRAM = """
import signal, sys
from pathlib import Path
import typer
from kernel_matrix import cli

class Verb:
    @staticmethod
    def register(app):
        @app.command()
        def work(mark: Path):
            try:
                on_terminal = sys.stdin.isatty()
                print("working", flush=True)
                if on_terminal:  # reading would end without a signal
                    signal.pause()
                while sys.stdin.readline():
                    print("still working", flush=True)
            except cli.Terminated:
                print("cleaning", flush=True)
                sys.stdin.readline()
                raise
            finally:
                mark.write_text("clean")

cli._VERBS = (Verb,)
cli.main()
"""


@contextmanager
def program(mark, *before, **pipes):
    """The program as a process that has begun to work."""
    options = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **pipes}
    with subprocess.Popen((*before, sys.executable, "-c", PROGRAM, str(mark)), **options) as process:
        try:
            yield process
        finally:
            process.kill()


def ended(process, text=""):
    """Exit code and standard error after ``text`` was its last input."""
    _, err = process.communicate(text, timeout=60)
    return process.returncode, err


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
def test_stop_signals_later_ones_leave_the_clean_up_alone(first, tmp_path):
    with program(tmp_path / "mark") as process:
        assert process.stdout.readline() == "working\n"
        process.send_signal(first)
        assert process.stdout.readline() == "cleaning\n"
        for later in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            process.send_signal(later)
            assert process.stderr.readline().startswith("still stopping: ")
        assert ended(process, "\n") == (128 + first, f"stopped by {first.name}\n")
    assert (tmp_path / "mark").read_text() == "clean"


def test_stop_signals_ignored_at_start_stay_ignored(tmp_path):
    ignoring = ("sh", "-c", "trap '' HUP INT; exec \"$@\"", "sh")
    with program(tmp_path / "mark", *ignoring) as process:
        assert process.stdout.readline() == "working\n"
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGINT)
        assert ended(process, "\n") == (0, "")


@pytest.mark.parametrize("controlling", [("--ctty",), ()], ids=["its_own", "another_session's"])
def test_closed_terminal_ends_with_129_after_cleaning_up(controlling, tmp_path):
    mine, its = os.openpty()
    # Where it is the terminal of another session no signal comes, and only writing fails.
    with program(
        tmp_path / "mark", "setsid", *controlling, stdin=its if controlling else subprocess.PIPE, stdout=its, stderr=its
    ) as process:
        os.close(its)
        assert b"working" in os.read(mine, 100)
        os.close(mine)
        assert ended(process, None if controlling else "\n\n") == (129, None)
    assert (tmp_path / "mark").read_text() == "clean"


def test_closed_pipe_after_a_signal_keeps_the_signals_code(tmp_path):
    with program(tmp_path / "mark") as process:
        assert process.stdout.readline() == "working\n"
        process.stdout.close()
        process.send_signal(signal.SIGINT)
        process.stdin.write("\n")
        process.stdin.close()
        assert process.wait(60) == 130
