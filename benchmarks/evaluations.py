"""What one evaluation costs, and how well fresh sessions agree: ten KernelBench problems, the reference as candidate.

    python benchmarks/evaluations.py KERNELBENCH [--sessions 1] [--model GLOB] [--lock FILE] [--folder FOLDER]

Wanted with one session: all ten in at most 45 s, each in at most 6 s. Wanted with five: a coefficient of variation of
the session medians of at most 0.1 % for eight of them and 0.5 % for all, clocks not locked.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

from runner.core.messages import SessionReport
from runner.core.vocab import Regime, Role
from runner.results.reading import read_record
from runner.results.record import Record, record_from_json

ROOT = Path(__file__).resolve().parent.parent
PROBLEMS = (1, 4, 23, 26, 36, 40, 47, 50, 89, 95)
"""Of level 1."""
MATRIX = """\
name = "evaluations"
dtypes = ["fp32"]
gpus = [{{ name = "gpu", model = "{model}" }}]
toolchains = [{{ name = "cu130", cuda = "13.0", torch = "2.11.0", triton = "3.6.0" }}]
problems = [{{ source = "kernelbench", path = {path}, select = {select} }}]
candidates = [{{ select = "*/@reference" }}]

[protocol]
tier = "screen"
sessions = {sessions}
"""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernelbench", type=Path, help="a checkout of KernelBench")
    parser.add_argument("--sessions", type=int, default=1)
    parser.add_argument("--model", default="NVIDIA H*", help="glob on the GPU's product name")
    parser.add_argument("--lock", help="images lock, where the image was adopted into another one")
    parser.add_argument("--folder", type=Path, help="where records go; default: one that is removed")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kernel-matrix-evaluations-") as temporary:
        folder = arguments.folder or Path(temporary)
        seconds = run(folder, arguments)
        records = [record_from_json(read_record(path)) for path in folder.glob("results/*/records/*.json")]
        records.sort(key=lambda record: record.host.started_at)
        for record in records:
            print(line(record))
        print(f"{len(records)} cells in {seconds:.1f} s (the command, from start to end)")


def run(folder: Path, arguments: argparse.Namespace) -> float:
    """Run the cells, records into ``folder``; the seconds it took."""
    folder.mkdir(parents=True, exist_ok=True)
    matrix = folder / "matrix.toml"
    select = json.dumps([f"level1/{number}_*" for number in PROBLEMS])
    path = json.dumps(str(arguments.kernelbench.resolve()))
    matrix.write_text(MATRIX.format(model=arguments.model, path=path, select=select, sessions=arguments.sessions))
    lock = ("--lock", arguments.lock) if arguments.lock else ()
    command = (sys.executable, "-m", "runner", "run", matrix, "--engine", "docker", "--results", folder / "results")
    started = time.monotonic()
    subprocess.run((*command, *lock), cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - started


def line(record: Record) -> str:
    """One record in a line: status, cost, phases, and how its sessions agree."""
    started, ended = (datetime.fromisoformat(at) for at in (record.host.started_at, record.host.ended_at))
    took_s = (ended - started).total_seconds()
    text = f"{record.cell.problem:<44} {record.outcome.status.value:<16} {took_s:6.2f} s"
    medians = [found for session in record.sessions if (found := median_ns(session))]
    if medians:
        text += f"  {statistics.median(medians) / 1e3:10.1f} µs"
    if len(medians) > 1:
        text += f"  CV {statistics.stdev(medians) / statistics.mean(medians):.3%}"
    return f"{text}  {phases(record.sessions[-1].durations_s) if record.sessions else record.outcome.evidence.message}"


def median_ns(session: SessionReport) -> float | None:
    """The candidate's median of one session."""
    blocks = [block for workload in session.workloads for block in workload.blocks]
    cold = [block for block in blocks if block.role is Role.CANDIDATE and block.regime is Regime.COLD]
    times: Sequence[int] = [time_ns for block in cold for time_ns in block.kept_ns]
    return statistics.median(times) if times else None


def phases(durations_s: Mapping[str, float]) -> str:
    """Where the judge's time went."""
    return " ".join(f"{name} {seconds:.2f}" for name, seconds in durations_s.items())


if __name__ == "__main__":
    main()
