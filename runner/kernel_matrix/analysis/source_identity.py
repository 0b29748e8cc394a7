"""Texts of sources with what makes two of them the same, and the licence that they name."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from kernel_matrix.hosts.code_versions import normal_form
from kernel_matrix.python_syntax import parse

_LICENCE: Final = re.compile(r"SPDX-License-Identifier:[ \t]*([\w.+()-]+(?: (?:AND|OR|WITH) [\w.+()-]+)*)")


@dataclass(frozen=True)
class SourceText:
    """The author's source of a candidate or of a reference."""

    text: str

    @classmethod
    def of_files(cls, files: Mapping[str, str]) -> SourceText:
        """Join the files of a source; of several, each follows a line with its name."""
        if len(files) == 1:
            return cls(*files.values())
        return cls("\n".join(f"==> {name} <==\n{text}" for name, text in files.items()))

    @cached_property
    def identity(self) -> str:
        """Digest that is the same for two sources that differ only in comments, docstrings and formatting.

        Comments count in sources that are not Python.
        """
        try:
            same = normal_form(parse(self.text))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            same = "\n".join(line for line in map(str.rstrip, self.text.splitlines()) if line)
        return hashlib.sha256(same.encode(errors="replace")).hexdigest()

    @cached_property
    def licence(self) -> str | None:
        """The SPDX identifiers that the source names itself, joined by ``AND``; None if there are none."""
        return " AND ".join(sorted(set(_LICENCE.findall(self.text)))) or None
