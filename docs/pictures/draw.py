"""Draws what a command prints: ``python docs/pictures/draw.py results.svg results results/example-h200.kmz``.

The first argument names the picture, in this folder; the rest is the command line of ``kernel-matrix``.
"""

# ruff: noqa: INP001  # a script, not a module of a package

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

_WEB_FONT = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


def main() -> None:
    """Run the command and write its picture."""
    name, *arguments = sys.argv[1:]
    environment = {**os.environ, "FORCE_COLOR": "1", "COLUMNS": "150"}
    command = (sys.executable, "-m", "kernel_matrix", *arguments)
    printed = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.rstrip()
    lines = printed.splitlines()
    screen = Console(record=True, width=max(Text.from_ansi(line).cell_len for line in lines), file=io.StringIO())
    screen.print(Text.from_ansi(printed), no_wrap=True)
    svg = screen.export_svg(title=f"kernel-matrix {shlex.join(arguments)}", unique_id=Path(name).stem)
    # Pages that show the picture load no fonts from elsewhere; every line keeps its width in any monospace one.
    Path(__file__).with_name(name).write_text(_WEB_FONT.sub("", svg), encoding="utf-8")


if __name__ == "__main__":
    main()
