"""How long the first steps take: from an empty environment to one's own kernel, judged on this machine.

``python benchmarks/first_steps.py [--wheels DIR]``: builds the wheel of this checkout and downloads what it needs to
``DIR``, which is not timed; then installs from there into a new environment, and runs the commands of the README.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
KERNEL = "problems/squares/candidates/mine.py"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wheels", type=Path, help="keep what was downloaded here")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wheels = asked.wheels or folder / "wheels"
        wanted = download(wheels)
        venv.create(folder / "environment", with_pip=True)
        programs = folder / "environment" / "bin"
        command = str(programs / "kernel-matrix")
        from_wheels = ("install", "-q", "--no-index", "--no-cache-dir", "--find-links", str(wheels))
        found = {
            "install_s": timed(folder, str(programs / "pip"), *from_wheels, f"{wanted}[local]"),
            "init_s": timed(folder, command, "init", "mine"),
            "first_try_s": timed(folder / "mine", command, "try", KERNEL),
            "second_try_s": timed(folder / "mine", command, "try", KERNEL),
        }
        whole = sum(seconds for step, seconds in found.items() if step != "second_try_s")
        print(json.dumps(found | {"to_first_verdict_s": round(whole, 1)}))


def download(wheels: Path) -> Path:
    """Return the wheel of this checkout, with what ``[local]`` needs beside it."""
    pip = (sys.executable, "-m", "pip")
    subprocess.run((*pip, "wheel", "-q", "--no-deps", "-w", wheels, ROOT), check=True)
    (wheel,) = wheels.glob("kernel_matrix-*.whl")
    subprocess.run((*pip, "download", "-q", "-d", wheels, f"{wheel}[local]"), check=True)
    return wheel


def timed(folder: Path, *command: str) -> float:
    """Run ``command`` in ``folder``; return its wall time in seconds."""
    environment = {**os.environ, "XDG_STATE_HOME": str(folder / "state")}
    started = time.perf_counter()
    subprocess.run(command, check=True, cwd=folder, env=environment, stdout=sys.stderr)
    return round(time.perf_counter() - started, 1)


if __name__ == "__main__":
    main()
