"""What benchmarks that run a matrix on a GPU have in common: options, the matrix's first lines, the command, records.

Not a benchmark of its own: those beside it import it.
"""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kernel_matrix.results.reading import read_record
from kernel_matrix.results.record import Record, record_from_json

ROOT = Path(__file__).resolve().parent.parent
IMAGE = '{ name = "cu130", cuda = "13.0", torch = "2.11.0", triton = "3.6.0" }'
RESULTS = "results"
"""In a benchmark's folder: where its records go."""


def parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the options that all of these benchmarks have."""
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--model", default="NVIDIA H*", help="glob on the GPU's product name")
    made.add_argument("--uuid", help="only this board")
    made.add_argument("--lock", help="images lock, where the image was adopted into another one")
    made.add_argument("--environment", help="without Docker: auto, or the path of a Python environment")
    made.add_argument(
        "--sandbox", choices=("docker", "unpacked", "process"), help="default: docker, process with --environment"
    )
    made.add_argument("--folder", type=Path, help="where records go; default: one that is removed")
    return made


def head(name: str, arguments: argparse.Namespace) -> str:
    """First lines of a matrix: single precision, on GPUs of one model, of Hopper's compute capability."""
    board = f', uuid = "{arguments.uuid}"' if arguments.uuid else ""
    gpu = f'{{ name = "gpu", model = "{arguments.model}", compute_capability = "9.0"{board} }}'
    environment = f'{{ name = "here", environment = "{arguments.environment}" }}'
    toolchain = environment if arguments.environment else IMAGE
    return f'name = "{name}"\ndtypes = ["fp32"]\ngpus = [{gpu}]\ntoolchains = [{toolchain}]\n'


def cpu_head(name: str) -> str:
    """First lines of a matrix: single precision, on the CPU, in the Python environment of this process."""
    return (
        f'name = "{name}"\ndtypes = ["fp32"]\ngpus = [{{ name = "cpu", platform = "cpu" }}]\n'
        'toolchains = [{ name = "here", environment = "auto", platform = "cpu" }]\n'
    )


def operators_matrix(name: str, arguments: argparse.Namespace, protocol: str) -> str:
    """Return a matrix with one cell of all operators in ``operators``; ``protocol`` has its last lines."""
    problems = Path(__file__).resolve().parent / "operators"
    return (
        f'{head(name, arguments)}problems = [{{ source = "folder", path = "{problems}" }}]\n'
        f'candidates = [{{ select = "operators/{arguments.candidate}" }}]\n\n[protocol]\ntier = "screen"\n'
        f'sessions = {arguments.sessions}\ntrials = 1\nmodes = ["standard"]\n{protocol}'
    )


@contextmanager
def working_folder(arguments: argparse.Namespace) -> Iterator[Path]:
    """Provide the requested folder, else a temporary one."""
    with tempfile.TemporaryDirectory(prefix="kernel-matrix-benchmark-") as temporary:
        folder: Path = (arguments.folder or Path(temporary)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        yield folder


def command(matrix: Path, results: Path, lock: str | None, sandbox: str = "docker") -> tuple[str | Path, ...]:
    """Return the command line that runs ``matrix``."""
    place = ("--sandbox", sandbox, "--results", results)
    return (sys.executable, "-m", "kernel_matrix", "run", matrix, *place, *(("--lock", lock) if lock else ()))


def sandbox_of(arguments: argparse.Namespace) -> str:
    """Return the chosen sandbox, else the one that the toolchain of :func:`head` needs."""
    if arguments.sandbox:
        return str(arguments.sandbox)
    return "process" if arguments.environment else "docker"


def run(folder: Path, matrix: str, lock: str | None, sandbox: str = "docker") -> float:
    """Run ``matrix`` (its text), records into ``folder``; the seconds that the command took."""
    path = folder / "matrix.toml"
    path.write_text(matrix)
    started = time.monotonic()
    subprocess.run(command(path, folder / RESULTS, lock, sandbox), cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - started


def records(results: Path) -> list[Record]:
    """All records below ``results``, in the order in which their cells began."""
    found = [record_from_json(read_record(path)) for path in results.glob("*/records/*.json")]
    return sorted(found, key=lambda record: record.host.started_at)


def load_module(path: Path) -> Any:
    """Import a problem or a candidate by its path."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{path} is no module")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
