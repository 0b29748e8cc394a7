"""Whether the nodes of a fleet measure what a run on the machine itself measures.

``python benchmarks/fleet_gpus.py MATRIX RESULTS [OPTION]…``, as root on a machine with two GPUs where Debian's Slurm is
installed. Each GPU becomes a node. The matrix runs here, over the two nodes, and here once more, with the same options.
Afterwards, where polars is installed::

    kernel-matrix compare RESULTS/first/NAME RESULTS/fleet/NAME   # the fleet against this machine
    kernel-matrix compare RESULTS/first/NAME RESULTS/again/NAME   # this machine against itself
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from kernel_matrix.platforms.registry import PLATFORMS
from tests.executors.engines.slurm_lab import slurm_lab

ROOT = Path(__file__).resolve().parents[1]
FLEET = """
[[sites]]
name = "machine"
engine = "slurm"
sandbox = "process"
workspace = "workspace"
gpus = {resources}
command = {command}
options = {{ partition = "night", cpus = 4 }}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("matrix")
    parser.add_argument("results", type=Path)
    asked, options = parser.parse_known_args()
    gpus = PLATFORMS.load("cuda").inventory().gpus[:2]
    models = [gpu.name.split()[1].lower() for gpu in gpus]
    nodes = {
        node: (model, (f"/dev/nvidia{gpu.minor}",)) for node, model, gpu in zip(("h1", "l1"), models, gpus, strict=True)
    }
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name, slurm_lab(Path(name) / "slurm", nodes) as lab:
        os.environ.update(lab.environment)
        # Jobs get no variables of this process.
        paths = f"PYTHONPATH={os.environ.get('PYTHONPATH', ROOT / 'runner')}"
        command = ("env", f"PATH={os.environ['PATH']}", paths, sys.executable, "-m", "kernel_matrix")
        fleet = Path(name) / "fleet.toml"
        fleet.write_text(FLEET.format(resources=json.dumps(sorted(set(models))), command=json.dumps(command)))
        _call("fleet", "check", str(fleet), "--matrix", asked.matrix, "--results", str(asked.results / "fleet"))
        for run, more in {"first": (), "fleet": ("--fleet", str(fleet)), "again": ()}.items():
            began = time.monotonic()
            _call("run", asked.matrix, "--results", str(asked.results / run), *more, *options)
            print(f"{run}: {time.monotonic() - began:.1f} s", flush=True)


def _call(*words: str) -> None:
    subprocess.run((sys.executable, "-m", "kernel_matrix", *words), check=False)


if __name__ == "__main__":
    main()
