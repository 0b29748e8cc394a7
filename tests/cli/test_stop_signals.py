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
sys.argv.insert(1, "work")
cli.main()
"""

WAITING = """
import queue, signal, subprocess, sys, threading, time
from kernel_matrix import cli

class Verb:
    @staticmethod
    def register(app):
        @app.command()
        def work():
            with subprocess.Popen(("cat",), stdin=subprocess.PIPE) as child:
                ended = threading.Thread(target=child.wait, daemon=True)
                ended.start()
                threading.Thread(target=signal_this_thread, daemon=True).start()
                try:
                    {wait}
                finally:
                    child.kill()

def signal_this_thread():
    time.sleep(0.5)  # until then the main thread waits
    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

cli._VERBS = (Verb,)
sys.argv.insert(1, "work")
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


@pytest.mark.parametrize("wait", ["queue.SimpleQueue().get()", "ended.join()", "child.wait()", "time.sleep(600)"])
def test_signal_not_seen_by_a_waiting_main_thread_stops_it(wait):
    # It interrupts another thread: as if the main thread had been about to wait when it came, but every time.
    program = WAITING.format(wait=wait)
    ran = subprocess.run((sys.executable, "-c", program), check=False, stderr=subprocess.PIPE, text=True, timeout=30)
    assert (ran.returncode, ran.stderr) == (128 + signal.SIGTERM, "stopped by SIGTERM\n")


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
