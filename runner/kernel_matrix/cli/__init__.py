"""The command line: the one place for printing, progress, exit codes and signals.

Each verb is one module with ``register(app)``; its function declares options and delegates. Whatever a verb needs
beyond typer is imported inside the function, so that ``--help`` stays fast.
"""

from __future__ import annotations

import errno
import signal
import sys
from typing import NoReturn

import typer

from kernel_matrix.cli import (
    analyze,
    audit,
    baseline,
    candidates,
    cell,
    compare,
    docs,
    doctor,
    fleet,
    generate,
    global_options,
    gpus,
    images,
    importing,
    init,
    merge,
    nightly,
    pack,
    pairs,
    plan,
    platform,
    problems,
    report,
    reproduce,
    results,
    run,
    serve,
    sweep,
    try_kernel,
    version,
)
from kernel_matrix.cli.output import write_line
from kernel_matrix.cli.stop_signals import StopSignals, Terminated, silence_gone_terminal
from kernel_matrix.errors import KernelMatrixError, UsageError

_VERBS = (
    init,
    try_kernel,
    doctor,
    plan,
    run,
    fleet,
    cell,
    merge,
    importing,
    results,
    analyze,
    audit,
    compare,
    reproduce,
    report,
    pack,
    pairs,
    nightly,
    baseline,
    serve,
    generate,
    images,
    gpus,
    platform,
    problems,
    candidates,
    docs,
    sweep,
    version,
)


_FORMER_NAMES = {"engine": "sandbox"}
"""Former name of an option → its name. Former names are accepted and appear in no help."""

_SIGNAL_BASE = 128
"""Exit codes of signals begin here, as those of shells do."""


def build_app() -> typer.Typer:
    """Return the Typer application with every verb registered."""
    app = typer.Typer(
        name="kernel-matrix",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,  # plain help: importing rich's takes longer than all else
        context_settings={
            "help_option_names": ["-h", "--help"],
            "token_normalize_func": lambda name: _FORMER_NAMES.get(name, name),
        },
    )
    global_options.register(app)
    for verb in _VERBS:
        verb.register(app)
    global_options.give_to_every_verb(app)
    return app


def main() -> NoReturn:
    """Entry point of ``kernel-matrix``: run a verb and turn what it raises into a message and an exit code."""
    stops = StopSignals()
    code = 0
    try:
        stops.install()
        build_app()()
    except Terminated:
        pass
    except KernelMatrixError as error:
        _say(f"error: {error}")
        code = error.exit_code
    except OSError as error:
        known = _code_of(error)
        if known is None:
            raise
        code = known
    except SystemExit:
        if stops.received is None:
            raise  # else it is only that the clean-up had nowhere to print to
    if stops.received is not None:
        stops.ignore_further()
        _say(f"stopped by {stops.received.name}")
        code = _SIGNAL_BASE + stops.received
    sys.exit(code)


def _code_of(error: OSError) -> int | None:
    """Return the exit code for an error that names its cause by itself; ``None`` for all others."""
    if error.errno == errno.ENAMETOOLONG:
        _say(f"error: {error.filename}: the path, or one name in it, is longer than this file system allows")
        return UsageError.exit_code
    if error.errno == errno.EIO and silence_gone_terminal():
        return _SIGNAL_BASE + signal.SIGHUP
    return None


def _say(text: str) -> None:
    write_line(text, stderr=True)
