"""Harnesses side by side on one GPU: how many of their verdicts are right, how long they take, how much memory.

    python benchmarks/harnesses.py --environment auto --kernelbench KernelBench --sol-execbench SOL-ExecBench \
        --flashinfer-bench flashinfer-bench --folder harnesses [--only 4]
    python benchmarks/harnesses.py --cpu --only 2          # this project's own judge alone, on small shapes

The kernels are those of ``mixed_kernels.py``. Each evaluation is one command in processes of its own, as users of that
harness start it, with the harness's own defaults and an empty cache of compiled kernels:

- ``kernel-matrix``: ``run`` with one cell of tier ``screen``, shapes ``smoke`` and ``default``;
- ``kernelbench``: a check of the source and the evaluator, with 5 trials and 100 timed calls; one shape, ``default``;
- ``sol-execbench``: its command line, both shapes as workloads, with its default tolerance;
- ``flashinfer-bench``: its command line, both shapes as workloads.

Peers come from checkouts and need the packages that they import; one that cannot be imported is left out, with the
reason. A right kernel ought to be accepted and a wrong one refused; ``crashed`` means no verdict at all, which accepts
nothing. Memory is what the driver counts in use on the device, beyond what was in use before. What is found goes into
``harnesses.jsonl`` in the folder; a kernel that is there is not evaluated again. robust-kbench cannot be given these
kernels, since it takes CUDA sources only; nor can KernelBenchX and KernelGenBench, which judge operators of their own.
On a CPU, where Triton kernels are interpreted, ``cumsum/triton_race`` and ``swiglu/torch_replaced_timer`` do no harm
and are accepted, and peers that need a GPU crash.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import gpu_runs
import pynvml
from mixed_kernels import OWN, SUITE, WORKLOADS, MixedKernel, mixed_kernels, mixed_problems
from trace_files import trace_files

from kernel_matrix.model.enums import Fault, Status

HERE = Path(__file__).resolve().parent
FOUND = "harnesses.jsonl"
RIGHT, WRONG, CRASHED = "right", "wrong", "crashed"
SAMPLE_S = 0.01
"""Between two readings of the memory in use; allocators of these harnesses keep what they took for longer."""
MIB = 1 << 20
CACHES = ("FIB_CACHE_PATH", "KERNEL_MATRIX_CACHE_DIR", "TRITON_CACHE_DIR")
"""Variables that say where compiled kernels are kept."""
MATRIX = """\
problems = [{{ source = "folder", path = {suite}, select = {problem}, workloads = {workloads} }}]
candidates = [{{ select = {candidate}{place} }}]

[protocol]
tier = "screen"
"""


@dataclass(frozen=True)
class Evaluation:
    """What one harness says of one kernel."""

    harness: str
    kernel: str
    is_right: bool
    """The kernel, by what is known of it."""
    verdict: str
    detail: str
    seconds: float
    peak_mib: float | None
    """Memory of the device; ``None`` where there is no driver to ask."""

    @property
    def is_correct(self) -> bool:
        """True if a right kernel is accepted, or a wrong one is not."""
        return (self.verdict == RIGHT) == self.is_right


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int | None
    """``None``: it ran past its limit."""
    stdout: str
    stderr: str

    @property
    def last_line(self) -> str:
        """Last line of what it printed, or of its errors."""
        text = self.stdout.strip() if self.code == 0 else self.stderr.strip()
        return text.splitlines()[-1] if text else f"exit code {self.code}"


@dataclass(frozen=True)
class Harness:
    """How one harness is started, and how its verdict is read."""

    name: str
    probe: str
    """Statements that only run where it can be imported."""
    command: Callable[[MixedKernel, Path], Sequence[str | Path]]
    """Writes what one evaluation needs into a folder, and returns the command."""
    verdict: Callable[[Done, Path], tuple[str, str]]
    """Verdict and detail."""
    paths: Sequence[Path] = field(default=())
    """Added to Python's path."""

    def environment(self, cache: Path) -> dict[str, str]:
        """Variables of its processes; ``cache`` is for what they compile."""
        paths = os.pathsep.join([*map(str, self.paths), *filter(None, [os.environ.get("PYTHONPATH")])])
        programs = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        caches = dict.fromkeys(CACHES, str(cache))
        return {**os.environ, "PYTHONPATH": paths, "PATH": programs, **caches}


def main() -> int:
    """Evaluate, print, and keep what was found."""
    arguments = read_arguments()
    with gpu_runs.working_folder(arguments) as folder:
        kept = folder / FOUND
        kept.touch()
        found = [Evaluation(**json.loads(one)) for one in kept.read_text().splitlines()]
        known = {(one.harness, one.kernel) for one in found}
        harnesses = [harness for harness in chosen(arguments) if can_start(harness, folder)]
        for kernel in mixed_kernels()[: arguments.only]:
            for harness in harnesses:
                if (harness.name, kernel.id) in known:
                    continue
                evaluation = evaluate(harness, kernel, arguments)
                found.append(evaluation)
                with kept.open("a") as lines:
                    lines.write(json.dumps(asdict(evaluation)) + "\n")
                print(line(evaluation), flush=True)
        print_table(found)
    return 0


def read_arguments() -> argparse.Namespace:
    parser = gpu_runs.parser(__doc__)
    parser.add_argument("--kernelbench", type=Path, help="a checkout of KernelBench")
    parser.add_argument("--sol-execbench", type=Path, help="a checkout of SOL-ExecBench")
    parser.add_argument("--flashinfer-bench", type=Path, help="a checkout of FlashInfer-Bench")
    parser.add_argument("--cpu", action="store_true", help="small shapes on the CPU, where only torch kernels can run")
    parser.add_argument("--only", type=int, metavar="N", help="the first N kernels")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds that an evaluation may take")
    return parser.parse_args()


def chosen(arguments: argparse.Namespace) -> Iterator[Harness]:
    """Yield this project's own judge, and the peers of which there is a checkout."""
    yield kernel_matrix(arguments)
    if arguments.kernelbench:
        yield kernelbench(arguments.kernelbench.resolve())
    if arguments.sol_execbench:
        yield sol_execbench(arguments.sol_execbench.resolve(), workloads_of(arguments))
    if arguments.flashinfer_bench:
        yield flashinfer_bench(arguments.flashinfer_bench.resolve(), workloads_of(arguments))


def workloads_of(arguments: argparse.Namespace) -> Sequence[str]:
    return WORKLOADS[:1] if arguments.cpu else WORKLOADS


def kernel_matrix(arguments: argparse.Namespace) -> Harness:
    """Return this project's own judge."""
    head = gpu_runs.cpu_head("harnesses") if arguments.cpu else gpu_runs.head("harnesses", arguments)
    sandbox = arguments.sandbox or ("process" if arguments.cpu else gpu_runs.sandbox_of(arguments))

    def command(kernel: MixedKernel, folder: Path) -> Sequence[str | Path]:
        cells = MATRIX.format(
            suite=json.dumps(str(SUITE)),
            problem=json.dumps(kernel.problem),
            workloads=json.dumps(workloads_of(arguments)),
            candidate=json.dumps(kernel.id),
            place="" if kernel.is_of_suite else f", path = {json.dumps(str(OWN))}",
        )
        (folder / "matrix.toml").write_text(head + cells)
        return gpu_runs.command(folder / "matrix.toml", folder / gpu_runs.RESULTS, arguments.lock, sandbox)

    def verdict(done: Done, folder: Path) -> tuple[str, str]:
        records = gpu_runs.records(folder / gpu_runs.RESULTS)
        if not records:
            return CRASHED, done.last_line
        outcome = records[-1].outcome
        detail = f"{outcome.status.value} {outcome.evidence.message}"
        if outcome.status is Status.PASSED:
            return RIGHT, detail
        return (WRONG if outcome.fault is Fault.CANDIDATE else CRASHED), detail

    return Harness("kernel-matrix", "import kernel_matrix", command, verdict)


def kernelbench(checkout: Path) -> Harness:
    """Return KernelBench's evaluator."""
    program = HERE / "peer_evaluator.py"

    def command(kernel: MixedKernel, _folder: Path) -> Sequence[str | Path]:
        return (sys.executable, program, checkout, "--one", kernel.reference, "--candidate", kernel.path)

    def verdict(done: Done, _folder: Path) -> tuple[str, str]:
        verdicts = {"passed": RIGHT, "failed": WRONG} if done.code == 0 else {}
        return verdicts.get(done.last_line.partition(":")[0], CRASHED), done.last_line

    probe = f"import pathlib, peer_evaluator; peer_evaluator.import_evaluator(pathlib.Path({str(checkout)!r}))"
    return Harness("kernelbench", probe, command, verdict, (HERE,))


def sol_execbench(checkout: Path, workloads: Sequence[str]) -> Harness:
    """Return SOL-ExecBench's command line."""
    problems = mixed_problems()
    languages = {"triton": "triton", "torch": "pytorch"}

    def command(kernel: MixedKernel, folder: Path) -> Sequence[str | Path]:
        build = {"languages": [languages[kernel.language]], "target_hardware": ["LOCAL"]}
        definition, drawn, solution = trace_files(kernel, problems[kernel.problem], workloads, build)
        (folder / "definition.json").write_text(json.dumps(definition))
        (folder / "workload.jsonl").write_text("\n".join(map(json.dumps, drawn)))
        (folder / "solution.json").write_text(json.dumps(solution))
        return (sys.executable, "-c", "from sol_execbench.cli import cli; cli()", folder, "--json")

    def verdict(done: Done, _folder: Path) -> tuple[str, str]:
        traces = [json.loads(one) for one in done.stdout.splitlines() if one.startswith("{")]
        return of_traces(traces, len(workloads), done)

    probe = "import sol_execbench.cli, sol_execbench.core.bench.timing"
    return Harness("sol-execbench", probe, command, verdict, (checkout / "src",))


def flashinfer_bench(checkout: Path, workloads: Sequence[str]) -> Harness:
    """Return FlashInfer-Bench's command line."""
    problems = mixed_problems()
    languages = {"triton": "triton", "torch": "python"}

    def command(kernel: MixedKernel, folder: Path) -> Sequence[str | Path]:
        build = {"language": languages[kernel.language], "target_hardware": ["cuda"]}
        definition, drawn, solution = trace_files(kernel, problems[kernel.problem], workloads, build)
        traces = [{"definition": kernel.problem, "workload": workload} for workload in drawn]
        for name, text in (
            ("definitions/one.json", json.dumps(definition)),
            ("solutions/one.json", json.dumps(solution)),
            ("workloads/one.jsonl", "\n".join(map(json.dumps, traces))),
        ):
            (folder / name).parent.mkdir()
            (folder / name).write_text(text)
        return (sys.executable, "-m", "flashinfer_bench", "run", "--local", folder)

    def verdict(done: Done, folder: Path) -> tuple[str, str]:
        lines = [one for path in folder.glob("traces/**/*.jsonl") for one in path.read_text().splitlines() if one]
        return of_traces([json.loads(one) for one in lines], len(workloads), done)

    return Harness("flashinfer-bench", "import flashinfer_bench.cli.main", command, verdict, (checkout,))


def of_traces(traces: Sequence[Mapping[str, Any]], wanted: int, done: Done) -> tuple[str, str]:
    """Return the verdict of SOL-ExecBench or FlashInfer-Bench: right if every workload has passed."""
    statuses = [trace["evaluation"]["status"] for trace in traces]
    if len(statuses) < wanted:
        return CRASHED, done.last_line
    return (RIGHT if set(statuses) == {"PASSED"} else WRONG), " ".join(statuses)


def can_start(harness: Harness, folder: Path) -> bool:
    """Return True if a harness can be imported; say why it is left out if not.

    It also brings what all evaluations import into the memory of this host, which is not part of their time.
    """
    argv = (sys.executable, "-c", f"import torch; {harness.probe}")
    done = run(argv, harness.environment(folder), limit_s=300.0)
    if done.code != 0:
        print(f"{harness.name} is left out: {done.last_line}", flush=True)
    return done.code == 0


def evaluate(harness: Harness, kernel: MixedKernel, arguments: argparse.Namespace) -> Evaluation:
    """Let one harness judge one kernel in a folder that is removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="kernel-matrix-harness-") as name:
        folder = Path(name) / "evaluation"
        folder.mkdir()
        command = harness.command(kernel, folder)
        with peak_memory(arguments) as peak:
            started = time.monotonic()
            done = run(command, harness.environment(Path(name) / "cache"), limit_s=arguments.timeout)
            seconds = time.monotonic() - started
        verdict, detail = harness.verdict(done, folder)
    peak_mib = max(peak) / MIB if peak else None
    return Evaluation(harness.name, kernel.id, kernel.is_right, verdict, detail[:300], seconds, peak_mib)


def run(command: Sequence[str | Path], environment: Mapping[str, str], *, limit_s: float) -> Done:
    """Run a command in a session of its own; whatever it leaves running there is killed."""
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        options = {"stdin": subprocess.DEVNULL, "stdout": stdout, "stderr": stderr, "start_new_session": True}
        with subprocess.Popen(command, cwd=gpu_runs.ROOT, env=environment, **options) as process:
            try:
                code = process.wait(limit_s)
            except subprocess.TimeoutExpired:
                return Done(None, "", f"took more than {limit_s:g} s")
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        for output in (stdout, stderr):
            output.seek(0)
        return Done(code, stdout.read().decode(errors="replace"), stderr.read().decode(errors="replace"))


@contextmanager
def peak_memory(arguments: argparse.Namespace) -> Iterator[list[int]]:
    """Fill a list with readings of the device's memory in use, beyond what is in use now, bytes; none on a CPU."""
    readings: list[int] = []
    if arguments.cpu:
        yield readings
        return
    pynvml.nvmlInit()
    named = arguments.uuid
    device = pynvml.nvmlDeviceGetHandleByUUID(named) if named else pynvml.nvmlDeviceGetHandleByIndex(0)
    before, ended = pynvml.nvmlDeviceGetMemoryInfo(device).used, threading.Event()

    def read_on() -> None:
        while not ended.wait(SAMPLE_S):
            readings.append(pynvml.nvmlDeviceGetMemoryInfo(device).used - before)

    thread = threading.Thread(target=read_on)
    thread.start()
    try:
        yield readings
    finally:
        ended.set()
        thread.join()
        pynvml.nvmlShutdown()


def line(one: Evaluation) -> str:
    """One evaluation in a line."""
    kind = "right" if one.is_right else "wrong"
    memory = "" if one.peak_mib is None else f"{one.peak_mib:8.0f} MiB"
    mark = "" if one.is_correct else "  NOT SO:"
    said = f"{one.verdict:<8}{one.seconds:7.1f} s{memory}{mark}"
    return f"{one.harness:<17} {one.kernel:<33} {kind}  said {said}  {one.detail[:90]}"


def print_table(found: Sequence[Evaluation]) -> None:
    """One row per harness."""
    print(f"\n{'harness':<17} {'right accepted':>15} {'wrong refused':>14} {'crashed':>8}", end=" ")
    print(f"{'median s':>9} {'total s':>8} {'MiB':>7}")
    for name in dict.fromkeys(one.harness for one in found):
        own = [one for one in found if one.harness == name]
        right, wrong = ([one for one in own if one.is_right is kind] for kind in (True, False))
        seconds = [one.seconds for one in own]
        peaks = [one.peak_mib for one in own if one.peak_mib is not None]
        print(
            f"{name:<17} {share(right):>15} {share(wrong):>14} {sum(one.verdict == CRASHED for one in own):>8} "
            f"{statistics.median(seconds):>9.1f} {sum(seconds):>8.1f} {max(peaks, default=0):>7.0f}"
        )


def share(found: Sequence[Evaluation]) -> str:
    """How many of these verdicts are correct."""
    return f"{sum(one.is_correct for one in found)} of {len(found)}"


if __name__ == "__main__":
    sys.exit(main())
