"""Systemd units and a crontab line that start a nightly run, filled in for this machine."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from kernel_matrix.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Time of day at which a nightly run starts, and its command."""

    hour: int
    minute: int
    folder: Path
    """The folder the command is started in; relative paths in it start here."""
    command: Sequence[str]
    log: Path
    """The file that cron writes the output to."""


def systemd(schedule: Schedule) -> str:
    """Return a service and its timer, one after the other, each under the name of its file.

    Raises:
        UsageError: A path or an option cannot be written there.
    """
    values = {
        **_time(schedule, width=2),
        "FOLDER": _specifiers(_one_line(str(schedule.folder))),
        "COMMAND": " ".join(_systemd_word(word) for word in schedule.command),
    }
    units = (_filled(f"kernel-matrix-nightly.{kind}", values) for kind in ("service", "timer"))
    return "\n".join(units)


def cron(schedule: Schedule) -> str:
    """Return a line for ``crontab -e``.

    Raises:
        UsageError: A path or an option cannot be written there.
    """
    values = {
        **_time(schedule, width=1),
        "FOLDER": _cron_word(str(schedule.folder)),
        "COMMAND": " ".join(map(_cron_word, schedule.command)),
        "LOG": _cron_word(str(schedule.log)),
    }
    return _filled("crontab", values)


def _time(schedule: Schedule, *, width: int) -> dict[str, str]:
    return {"HOUR": f"{schedule.hour:0{width}}", "MINUTE": f"{schedule.minute:0{width}}"}


def _filled(name: str, values: Mapping[str, str]) -> str:
    text = files("kernel_matrix.nightly").joinpath("templates").joinpath(name).read_text(encoding="utf-8")
    # In one pass: a value that looks like a placeholder stays what it is.
    head, *parts = text.split("@")
    said = [head]
    for number, part in enumerate(parts):
        said.append(values[part] if number % 2 == 0 else part)
    return "".join(said)


def _systemd_word(word: str) -> str:
    """Return ``word`` as systemd reads a quoted word of a command line (systemd.service, "Command lines")."""
    escaped = _one_line(word).replace("\\", "\\\\").replace('"', '\\"').replace("$", "$$")
    return f'"{_specifiers(escaped)}"'


def _specifiers(text: str) -> str:
    return text.replace("%", "%%")


def _cron_word(word: str) -> str:
    """Return ``word`` as a quoted shell word, with ``%`` escaped because it starts a new line in cron (crontab(5))."""
    return shlex.quote(_one_line(word)).replace("%", "\\%")


def _one_line(text: str) -> str:
    if not text.isprintable():
        raise UsageError(f"{text!r:.80} cannot be written into a schedule", next_step="Use names on one line.")
    return text
