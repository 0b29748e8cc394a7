"""Run the user's command once, with the summary of a night."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections.abc import Mapping
from typing import Any, Final

from kernel_matrix.errors import UsageError

VARIABLE: Final = "KERNEL_MATRIX_SUMMARY"
"""The environment variable with the short text."""
LIMIT_S: Final = 300.0
"""Seconds until the command is killed: sending a mail takes less, and a night must end."""


def command_of(text: str) -> tuple[str, ...]:
    """Return the words of ``--notify``, split as a shell would; no shell runs them.

    Raises:
        UsageError: There are none, or a quotation is not closed.
    """
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        what = f"--notify {text!r} cannot be split into words: {error}"
        raise UsageError(
            what, next_step="quote it as for a shell, e.g. --notify 'mail -s nightly me@example.org'"
        ) from None
    if not words:
        raise UsageError("--notify is empty", next_step="e.g. --notify 'mail -s nightly me@example.org'")
    return words


def tell(command: tuple[str, ...], document: Mapping[str, Any], *, limit_s: float = LIMIT_S) -> str:
    """Run ``command`` with ``document`` on its stdin and the short text in :data:`VARIABLE`.

    Returns:
        What went wrong, in a sentence; empty where nothing did.
    """
    environment = {**os.environ, VARIABLE: document["text"]}
    given = f"{json.dumps(document, allow_nan=False, sort_keys=True)}\n".encode()
    try:
        done = subprocess.run(
            command,
            check=False,
            input=given,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=limit_s,
        )
    except subprocess.TimeoutExpired:
        return f"the command of --notify took longer than {limit_s:.0f} s and was killed: {shlex.join(command)}"
    except OSError as error:
        return f"the command of --notify cannot be run: {error.strerror}: {command[0]}"
    if done.returncode == 0:
        return ""
    last = " ".join(done.stdout.decode(errors="replace").split())[-300:]
    return f"the command of --notify ended with {done.returncode}: {last or 'it said nothing'}"
