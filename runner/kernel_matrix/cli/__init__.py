"""The command line: the one place for printing, progress, exit codes and signals.

Each verb is one module with ``register(app)``; its function declares options and delegates. Whatever a verb needs
beyond typer is imported inside the function, so that ``--help`` stays fast.
"""

from __future__ import annotations

import signal
import sys
from types import FrameType
from typing import NoReturn

import typer

from kernel_matrix.cli import (
    analyze,
    audit,
    baseline,
    candidates,
    cell,
    compare,
    doctor,
    gpus,
    images,
    importing,
    merge,
    nightly,
    plan,
    problems,
    report,
    reproduce,
    results,
    run,
    sweep,
    version,
)
from kernel_matrix.errors import KernelMatrixError

_VERBS = (
    doctor,
    plan,
    run,
    cell,
    merge,
    importing,
    results,
    analyze,
    audit,
    compare,
    reproduce,
    report,
    nightly,
    baseline,
    images,
    gpus,
    problems,
    candidates,
    sweep,
    version,
)


class Terminated(BaseException):
    """SIGINT, SIGTERM or SIGHUP arrived; raised so that every ``finally`` and ``with`` runs."""

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.signum = signum


def build_app() -> typer.Typer:
    """The Typer application with every verb registered."""
    app = typer.Typer(
        name="kernel-matrix",
        help="Run every candidate GPU kernel on every GPU, toolchain and dtype you own, and believe the result.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        add_completion=False,
    )
    for verb in _VERBS:
        verb.register(app)
    return app


def main() -> NoReturn:
    """Entry point of ``kernel-matrix``: run a verb and turn what it raises into a message and an exit code."""
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, _raise_terminated)
    try:
        build_app()()
    except KernelMatrixError as error:
        _say(f"error: {error}")
        sys.exit(error.exit_code)
    except Terminated as stop:
        _say(f"stopped by {signal.Signals(stop.signum).name}")
        sys.exit(128 + stop.signum)
    sys.exit(0)


def _raise_terminated(signum: int, _frame: FrameType | None) -> NoReturn:
    # One signal is enough: a second one must not cut the clean-up short.
    signal.signal(signum, signal.SIG_IGN)
    raise Terminated(signum)


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
