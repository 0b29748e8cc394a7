"""A whole session without a sandbox: the real judge and the real workers as processes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from kernel_matrix.inside import confine
from kernel_matrix.inside.atomic_write import replace_file
from kernel_matrix.inside.confine import ConfineRequest
from kernel_matrix.inside.judge.judge import numbered
from kernel_matrix.model.enums import Role
from kernel_matrix.model.messages import ContestantSpec, JudgeJob, SessionReport, dumps, from_json
from tests.inside.cuda import SimulatedCuda, compile_library
from tests.inside.sessions import SOFTMAX, make_job
from tests.sim.hip import SimulatedHip, compile_hip
from tests.sim.preloaded import Fork

ROOT = Path(__file__).resolve().parents[2]

RunSession = Callable[..., SessionReport]


class Preloaded:
    """As much of :class:`subprocess.Popen` as a session needs, forked from a process that has torch."""

    def __init__(self, argv: Sequence[str], environment: Mapping[str, str], folder: Path) -> None:
        self._process = Fork(Role.JUDGE)
        self._process.start(
            ConfineRequest(
                argv=list(argv),
                env=dict(environment),
                cwd=str(folder),
                report_fd=-1,  # made at the start
                parent=os.getpid(),
                namespaces=confine.NONE,
                limits={},
            )
        )

    def wait(self, timeout_s: float = 60.0) -> int | None:
        """Wait for its end; its exit code."""
        end = self._process.wait(timeout_s)
        assert end is not None, f"no end within {timeout_s:g} s"
        sys.stderr.write(end.log_tail)
        return end.code

    def poll(self) -> int | None:
        """Its exit code, if it has ended."""
        end = self._process.wait(0)
        return None if end is None else end.code

    def kill(self) -> None:
        """End it, and all it has started."""
        self._process.kill()


class SessionProcesses:
    """The processes of one session on this machine: the judge, and a worker for each contestant.

    :param preloaded: fork them from a process that has torch, instead of starting each anew.
    """

    def __init__(self, root: Path, *, preloaded: bool = False) -> None:
        self.root = root
        self._preloaded = preloaded
        self._environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT / "runner"),
            "HOME": str(root),
            "OMP_WAIT_POLICY": "PASSIVE",
        }
        self._processes: list[subprocess.Popen[bytes] | Preloaded] = []
        for name in ("judge", "channel", "out"):
            (root / name).mkdir()

    def begin(self, job: JudgeJob, problem: str) -> None:
        """Give the judge its job, as a host does: the problem first, the job whole."""
        (self.root / "judge" / "problem.py").write_text(textwrap.dedent(problem))
        replace_file(self.root / "judge" / numbered("job.json", job.number), dumps(job))

    def start_worker(
        self, contestant: ContestantSpec, source: str, device: str = "cpu", number: int = 0
    ) -> subprocess.Popen[bytes]:
        """Start a contestant's worker; its folders must be there before the judge is, or its job."""
        code = self.root / "code" / numbered(contestant.name, number)
        channel = self.root / "channel" / numbered(contestant.name, number)
        for folder in (code, channel):
            folder.mkdir(parents=True, exist_ok=True)
        (code / contestant.file).write_text(textwrap.dedent(source))
        command = (
            "kernel_matrix.inside.worker.worker",
            "--channel",
            str(channel),
            "--code",
            str(code),
            "--device",
            device,
        )
        return self._start(command, {"TRITON_INTERPRET": "1"} if device == "cpu" else {}, subprocess.DEVNULL)

    def start_judge(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start the judge."""
        folders = (("--job", "judge/job.json"), ("--channel", "channel"), ("--out", "out"))
        places = [word for option, place in folders for word in (option, str(self.root / place))]
        return self._start(("kernel_matrix.inside.judge.judge", *places, *arguments), {}, None)

    def report(self, number: int = 0) -> SessionReport:
        """The judge's report on its candidate ``number``."""
        file = self.root / "out" / numbered("report.json", number)
        return from_json(SessionReport, json.loads(file.read_text()))

    def end(self) -> None:
        """End all processes that still run."""
        for process in self._processes:
            process.kill()
            process.wait()

    def _start(self, command: Sequence[str], settings: Mapping[str, str], output: int | None) -> Any:
        argv = (sys.executable, "-s", "-B", "-m", *command)
        environment = {**self._environment, **settings}
        process: Any = (
            Preloaded(argv, environment, self.root)
            if self._preloaded
            else subprocess.Popen(argv, env=environment, cwd=self.root, stdout=output, stderr=output)
        )
        self._processes.append(process)
        return process


@pytest.fixture
def started(tmp_path: Path) -> Iterator[SessionProcesses]:
    """The processes of a session, none of them there yet; each will be a new Python."""
    made = SessionProcesses(tmp_path)
    yield made
    made.end()


@pytest.fixture
def processes(fork_source: None, tmp_path: Path) -> Iterator[SessionProcesses]:
    """The processes of a session, none of them there yet; each will be a fork."""
    made = SessionProcesses(tmp_path, preloaded=True)
    yield made
    made.end()


@pytest.fixture
def run_session(processes: SessionProcesses) -> RunSession:
    """Run one session of ``candidate`` against ``problem`` (sources) and return the judge's report."""

    def run(candidate: str, problem: str = SOFTMAX, library: str = "", **changes: Any) -> SessionReport:
        job = make_job(**changes)
        sources = {"candidate.py": candidate, "library.py": library, "problem.py": problem}
        for contestant in job.contestants:
            processes.start_worker(contestant, sources[contestant.file], job.device)
        processes.begin(job, problem)
        assert processes.start_judge().wait(90) == 0
        return processes.report()

    return run


@pytest.fixture(scope="session")
def simulated_libcuda(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The simulated ``libcuda.so.1``, compiled once."""
    if shutil.which("gcc") is None:
        pytest.skip("no gcc to compile the simulated driver with")
    return compile_library(tmp_path_factory.mktemp("cuda"))


@pytest.fixture
def cuda(simulated_libcuda: Path, tmp_path: Path) -> SimulatedCuda:
    """A simulated CUDA driver that has not been called yet."""
    return SimulatedCuda(simulated_libcuda, tmp_path / "cuda-calls")


@pytest.fixture(scope="session")
def simulated_libamdhip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The simulated ``libamdhip64.so.7``, with ``libhiprtc.so.7`` beside it, compiled once."""
    if shutil.which("g++") is None:
        pytest.skip("no g++ to compile the simulated runtime and its kernels with")
    return compile_hip(tmp_path_factory.mktemp("hip"))


@pytest.fixture
def hip(simulated_libamdhip: Path, tmp_path: Path) -> SimulatedHip:
    """A simulated HIP runtime that has not been called yet."""
    return SimulatedHip(simulated_libamdhip, tmp_path / "hip-calls")
