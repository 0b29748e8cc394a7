"""Read a configuration file, and say where its faults are."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from os.path import expanduser, normpath
from pathlib import Path
from typing import Any

from kernel_matrix.config_files.faults import ConfigFault
from kernel_matrix.errors import ConfigError
from kernel_matrix.toml_text import TomlSyntaxError, nearest, parse_toml, scan, show

STANDARD_INPUT = "-"
"""Name of a file that is standard input."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigText:
    """The text of a configuration file, and what it is.

    Args:
        path: The file.
        text: Its content.
        kind: As in "a matrix".
        next_step: Where its keys are described.
    """

    path: Path
    text: str
    kind: str
    next_step: str

    def parse(self) -> dict[str, Any]:
        """Return the document.

        Raises:
            ConfigError: It is not TOML.
        """
        try:
            return parse_toml(self.text)
        except TomlSyntaxError as error:
            line, column = error.position or (1, 1)
            raise ConfigError([f"{self.path}:{line}:{column} {error.reason}"], next_step=self.next_step) from None

    def error(self, faults: Iterable[ConfigFault]) -> ConfigError:
        """Make the exception for ``faults``: ``file:line:column key: fault``, in the order of the file."""
        positions = scan(self.text)
        placed = sorted((nearest(positions, fault.path), show(fault.path), fault.text) for fault in faults)
        lines = [f"{self.path}:{line}:{column} {key}: {what}" for (line, column), key, what in placed]
        return ConfigError(lines, next_step=self.next_step)

    def nested_too_deeply(self) -> ConfigError:
        """Make the exception for a document whose check exceeds Python's stack."""
        return ConfigError([f"{self.path}:1:1 is nested too deeply to be {self.kind}"], next_step=self.next_step)


def read_config(path: Path, *, kind: str, next_step: str, if_missing: str) -> ConfigText:
    """Read a configuration file; ``-`` is standard input.

    Args:
        path: The file.
        kind: As in "a matrix".
        next_step: Where its keys are described.
        if_missing: The next step where it cannot be read.

    Raises:
        ConfigError: It cannot be read or is not UTF-8.
    """
    try:
        text = config_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ConfigError([f"{path}:{line}:1 is not UTF-8 text"], next_step="save the file as UTF-8") from None
    except OSError as error:
        raise ConfigError([f"{path}: cannot be read: {error.strerror}"], next_step=if_missing) from None
    return ConfigText(path=path, text=text, kind=kind, next_step=next_step)


def resolve(root: Path, written: str) -> Path:
    """Return the absolute path for a path in a file that lies in ``root``; ``~`` is the home folder."""
    return Path(normpath(root / expanduser(written)))  # noqa: PTH111  # Path.expanduser raises for unknown users


def config_bytes(path: Path) -> bytes:
    """Return the bytes of a configuration file.

    Raises:
        OSError: It cannot be read.
    """
    return _standard_input() if path.name == STANDARD_INPUT else path.read_bytes()


@cache
def _standard_input() -> bytes:
    """Return all of standard input, each time: it is read for the matrix, its digest and the lines of its faults."""
    return sys.stdin.buffer.read()
