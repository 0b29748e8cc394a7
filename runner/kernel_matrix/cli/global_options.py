"""Options that every verb has: ``-q`` and ``-v`` on both sides of the verb's name, ``-h`` and ``--version``."""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated, Any

import typer

from kernel_matrix.cli.added_parameters import parameter, with_parameters
from kernel_matrix.cli.help_examples import examples_of
from kernel_matrix.version import __version__

ROOT_EPILOG = """\b
Examples:
  kernel-matrix plan                       what of ./matrix.toml runs here
  kernel-matrix run                        run it; a run that was stopped goes on
  kernel-matrix results                    what the last run found
  kernel-matrix results --filter problem=softmax --sort -speedup
  kernel-matrix VERB --help                options and examples of a verb

\b
Environment:
  DOCKER_HOST                  daemon to use, Docker's or Podman's
  KERNEL_MATRIX_CACHE_DIR      where compiled candidates are kept
  KERNEL_MATRIX_DEBIAN_MIRROR  where debootstrap fetches from
  KERNEL_MATRIX_GPU_SETTINGS   `forbid`: no setting of a GPU is ever changed
  KERNEL_MATRIX_HOST_FILE      this host's file; /etc/kernel-matrix/host.toml
  KERNEL_MATRIX_LOCK_DIR       folder of the device locks
  KERNEL_MATRIX_STATE_DIR      where calibrations of GPUs are kept
  KERNEL_MATRIX_UNPACKED_DIR   where unpacked images are kept
  KERNEL_MATRIX_WEBHOOK        where `nightly` posts its summary
  NO_COLOR, PAGER              no colours; the program that shows long output

`kernel-matrix docs commands` says more of each.
"""


class Verbosity(IntEnum):
    """How much is printed."""

    QUIET = -1
    """Warnings, errors and the summary."""
    NORMAL = 0
    VERBOSE = 1
    """Also what is usually summed up in one line."""


_chosen = Verbosity.NORMAL


def verbosity() -> Verbosity:
    """Return what ``-q`` and ``-v`` of this invocation chose."""
    return _chosen


def is_quiet() -> bool:
    """Return whether only warnings and the summary are wanted."""
    return _chosen is Verbosity.QUIET


def is_verbose() -> bool:
    """Return whether more than usual is wanted."""
    return _chosen is Verbosity.VERBOSE


def _choose(level: Verbosity) -> None:
    global _chosen  # noqa: PLW0603  # one process has one command line
    _chosen = level


def _print_version(value: bool) -> bool:
    if value:
        typer.echo(f"kernel-matrix {__version__}")
        raise typer.Exit
    return value


_VERBOSITY = (
    parameter("quiet", bool, False, typer.Option("-q", "--quiet", help="Print only warnings and the summary.")),
    parameter("verbose", bool, False, typer.Option("-v", "--verbose", help="Print more.")),
)


def _obey(*, quiet: bool, verbose: bool) -> dict[str, Any]:
    if quiet or verbose:
        _choose(Verbosity.QUIET if quiet else Verbosity.VERBOSE)
    return {}


def give_to_every_verb(app: typer.Typer, group: str = "") -> None:
    """Let each registered verb of ``app``, and of the groups in it, take ``-q`` and ``-v`` too, and show examples."""
    for verb in app.registered_commands:
        if verb.callback is not None:
            verb.epilog = verb.epilog or examples_of(f"{group}{verb.name or verb.callback.__name__}")
            verb.callback = with_parameters(verb.callback, _VERBOSITY, _obey)
    for inner in app.registered_groups:
        if inner.typer_instance is not None:
            give_to_every_verb(inner.typer_instance, f"{inner.name} ")


def register(app: typer.Typer) -> None:
    """Add the options before the verb to ``app``."""

    @app.callback(epilog=ROOT_EPILOG)
    def options_of_all_verbs(
        *,
        version: Annotated[  # noqa: ARG001  # its callback prints and exits
            bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version and exit.")
        ] = False,
        quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Print only warnings and the summary.")] = False,
        verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Print more.")] = False,
    ) -> None:
        """Run every candidate GPU kernel on every GPU, toolchain and dtype you own, and believe the result."""
        _choose(Verbosity.NORMAL)  # tests call several times in one process
        _obey(quiet=quiet, verbose=verbose)
