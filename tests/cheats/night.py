"""Cheats and controls as candidates of a matrix, ``kernel-matrix run`` on them, and how each ended."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from kernel_matrix.client.http_clients import Client
from kernel_matrix.conformance.cheats import Cheat
from kernel_matrix.model.enums import Fault, Regime, Role, Status, Verdict
from kernel_matrix.platforms.registry import get_platform
from kernel_matrix.results.judged import judge, times_of
from tests.cheats.collection import HERE, PROBLEMS
from tests.pipes import Program, read_line

ROOT = Path(__file__).resolve().parents[2]
NAME = "cheats"
MIN_SAMPLES = 8
_INTERNALS = re.compile(r"^from tests\.cheats\.worker_internals import (?:\([^)]*\)|.*)$", re.MULTILINE)

_MATRIX = """\
name = "{name}"
dtypes = ["fp32"]
gpus = [{{ name = "{device}", {gpu} }}]
toolchains = [{{ name = "{toolchain}", {versions} }}]
candidates = [{{ select = ["*"], path = "candidates" }}]
"""
_PROBLEMS = """
[[problems]]
source = "folder"
path = "{folder}"
select = {select}
workloads = ["{workload}"]
"""
_QUICK = f"""
[protocol]
trials = 2
warmup_calls = 2
min_samples = {MIN_SAMPLES}
max_samples = 16
budget_s = 2
block_calls = 3
steady_cap_s = 0

[policy]
memory_mib = 2048
pids = 128
tmpfs_mib = 64
file_mib = 256
gpu_wait_s = 60
"""
_ON_GPU = f"""
[protocol]
trials = 2
min_samples = {2 * MIN_SAMPLES}
max_samples = 60
budget_s = 2

[policy]
memory_mib = 8192
"""
"""Less of everything that only makes times more precise, and less memory to fill."""


@dataclass(frozen=True, kw_only=True)
class Stand:
    """Sandbox, device, toolchain and settings that the cheats run on."""

    sandbox: str
    device: str = "cpu"
    """As :meth:`~kernel_matrix.conformance.cheats.Cheat.runs_on` takes it."""
    gpu: str = 'vendor = "cpu"'
    """What a GPU must match, in TOML."""
    toolchain: str = "cpu"
    versions: Mapping[str, str] = field(
        default_factory=lambda: {name: _installed(name) for name in ("torch", "triton")}
    )
    workload: str = "smoke"
    settings: str = _QUICK
    """Tables at the end of the matrix; empty: what everybody gets who sets nothing."""
    lock: Path | None = None
    program: Sequence[str] = ("-m", "kernel_matrix")
    """What Python is started on."""


def on_gpu(sandbox: str, *, toolchain: str = "cu130", cuda: str = "13.0", lock: Path | None = None) -> Stand:
    """Return the stand for the NVIDIA GPUs of this machine that are of the first one's model.

    The process sandbox runs the Python environment of this process.

    :param toolchain: name of the image, for sandboxes with images.
    :param cuda: version of its CUDA.
    """
    gpu = get_platform("cuda").inventory().gpus[0]
    uses_images = sandbox != "process"
    image = {"cuda": cuda, "torch": _installed("torch", "2.11.0"), "triton": _installed("triton", "3.6.0")}
    return Stand(
        sandbox=sandbox,
        device="cuda",
        gpu=f'model = "{gpu.name}"',
        toolchain=toolchain if uses_images else "here",
        versions=image if uses_images else {"environment": "auto"},
        workload="default",
        settings=_ON_GPU,
        lock=lock,
    )


@dataclass(frozen=True)
class Ended:
    """How one cheat ended."""

    cheat: Cheat
    record: Mapping[str, Any]

    @property
    def status(self) -> Status:
        """The cell's."""
        return Status(self.record["outcome"]["status"])

    @property
    def evidence(self) -> str:
        """In words; empty where nothing went wrong."""
        return str(self.record["outcome"]["evidence"]["message"])

    @property
    def seconds(self) -> float:
        """All that the cell took once it was built, its wait for the device left out."""
        phases = self.record["host"]["phases_s"]
        return float(phases["total"]) - float(phases.get("lease_wait", 0))

    @property
    def findings(self) -> set[str]:
        """Rules that speak of the source."""
        return {finding["rule"] for finding in self.record["host"].get("findings", ())}

    @property
    def times_ms(self) -> list[float]:
        """Its timed calls, cold."""
        blocks = [b for s in self.record["sessions"] for w in s["workloads"] for b in w["blocks"]]
        mine = [b for b in blocks if b["role"] == Role.CANDIDATE.value and b.get("regime") in (None, Regime.COLD.value)]
        return [time_ns / 1e6 for block in mine for time_ns in block["device_ns"]]

    @property
    def time_ms(self) -> float:
        """The time of its calls that is shown; the shortest of several workloads and sessions."""
        shown = [times.time_ns(Role.CANDIDATE.value) for times in times_of(self.record).values()]
        return min(time_ns / 1e6 for time_ns in shown if time_ns is not None)

    @property
    def faster_by(self) -> float:
        """Largest speed-up over eager that is called ``faster``; 0 where none is."""
        comparisons = [found.comparison for found in judge(self.record, times_of(self.record)).values()]
        shown = (one.estimate for one in comparisons if one is not None and one.verdict is Verdict.FASTER)
        return max(shown, default=0.0)

    def wrong(self) -> str:
        """In what this is not how it was meant to end; empty where it is."""
        cheat = self.cheat
        if self.status not in cheat.expect:
            wanted = ", ".join(sorted(status.value for status in cheat.expect))
            return f"{self.status.value} where {wanted} was due: {self.evidence}"
        if self.status is Status.PASSED:
            return self._wrong_time()
        if self.status is not Status.INVALID_PROBLEM and self.record["outcome"]["fault"] != Fault.CANDIDATE.value:
            return f"counted as the fault of {self.record['outcome']['fault']}"
        return "" if self.evidence else "there is no evidence"

    def _wrong_time(self) -> str:
        if len(self.times_ms) < MIN_SAMPLES:
            return f"accepted on {len(self.times_ms)} samples"
        if self.time_ms < self.cheat.costs_ms:
            return f"accepted at {self.time_ms:.3f} ms, and it costs {self.cheat.costs_ms:g} ms at least"
        if self.faster_by > self.cheat.earns:
            return f"accepted as {self.faster_by:.2f}× faster, and it earns {self.cheat.earns:g}× at most"
        return ""

    def unread(self) -> str:
        """Describe the finding that the scan of its source lacks; empty if it has it."""
        missing = self.cheat.finding and self.cheat.finding not in self.findings
        return f"no finding {self.cheat.finding}, only {sorted(self.findings)}" if missing else ""


@dataclass(frozen=True)
class Night:
    """One run over some cheats."""

    code: int
    stderr: str
    ended: Mapping[str, Ended]
    """Id of a candidate → how it ended."""
    leftovers: Sequence[str]
    """What is left in the folder of temporary files."""


@contextmanager
def staged(cheats: Iterable[Cheat], stand: Stand) -> Iterator[Path]:
    """A folder with a matrix of these cheats, removed afterwards; others may pass through it."""
    with tempfile.TemporaryDirectory(prefix="km-cheats-") as name:
        folder = Path(name)
        folder.chmod(0o711)
        for inside in ("scratch", "locks", "images"):
            (folder / inside).mkdir()
        (folder / "scratch").chmod(0o711)
        if stand.lock is not None:
            shutil.copyfile(stand.lock, folder / "images" / "images.lock")
        for cheat in cheats:
            _place(cheat, folder / "candidates" / cheat.problem)
        (folder / "matrix.toml").write_text(_matrix({cheat.problem for cheat in cheats}, stand))
        yield folder


def spend(cheats: Sequence[Cheat], stand: Stand) -> Night:
    """Run them, one after the other."""
    with staged(cheats, stand) as folder:
        command = (sys.executable, *stand.program, "run", "--json", "--sandbox", stand.sandbox)
        ran = subprocess.run(
            command, cwd=folder, env=_environment(folder), capture_output=True, text=True, check=False, timeout=1500
        )
        records = [json.loads(path.read_text()) for path in (folder / "results" / NAME / "records").glob("*.json")]
        by_candidate = {record["cell"]["candidate"]: record for record in records}
        ended = {c.candidate: Ended(c, by_candidate[c.candidate]) for c in cheats if c.candidate in by_candidate}
        leftovers = sorted(path.name for path in (folder / "scratch").iterdir())
    return Night(ran.returncode, ran.stderr, ended, leftovers)


def spend_in_service(cheats: Sequence[Cheat], stand: Stand) -> Night:
    """Send them to a service, all at once, and read the records that its answers name."""
    with staged(cheats, stand) as folder:
        command = (sys.executable, *stand.program, "serve", "--port", "0", "--sandbox", stand.sandbox)
        with Program(command, cwd=folder, env=_environment(folder)) as service:
            with Client(read_line(service).split()[1].rstrip(";")) as client:
                sent = [client.submit(**_request(cheat)).id for cheat in cheats]
                answers = {one.id: one.result for one in client.wait(sent, timeout_s=1500)}
            service.send_signal(signal.SIGTERM)
            _, stderr = service.communicate()
        ended = {}
        for cheat, id_ in zip(cheats, sent, strict=True):
            record = folder / "results" / NAME / "records" / f"{answers[id_].record}.json"
            ended[cheat.candidate] = Ended(cheat, json.loads(record.read_text()))
        leftovers = sorted(path.name for path in (folder / "scratch").iterdir())
    by_signal = service.returncode == 128 + signal.SIGTERM  # that of above, which is how a service ends
    return Night(0 if by_signal else service.returncode, stderr, ended, leftovers)


def _environment(folder: Path) -> dict[str, str]:
    own = {"TMPDIR": "scratch", "KERNEL_MATRIX_LOCK_DIR": "locks", "KERNEL_MATRIX_CACHE_DIR": "cache"}
    paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, **{name: str(folder / place) for name, place in own.items()}, "PYTHONPATH": paths}


def _place(cheat: Cheat, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / cheat.path.name).write_text(_source(cheat), encoding="utf-8")
    (folder / cheat.path.with_suffix(".toml").name).write_text(f'language = "{cheat.language.value}"\n')


def _request(cheat: Cheat) -> dict[str, str]:
    return {"problem": cheat.problem, "source": _source(cheat), "language": cheat.language.value}


def _source(cheat: Cheat) -> str:
    return with_internals(cheat.path.read_text(encoding="utf-8"))


def with_internals(source: str) -> str:
    """Return ``source`` as one file: an import of :mod:`tests.cheats.worker_internals` becomes that module's text."""
    return _INTERNALS.sub(lambda _import: (HERE / "worker_internals.py").read_text(encoding="utf-8"), source)


def _matrix(problems: set[str], stand: Stand) -> str:
    own = problems & {folder.name for folder in PROBLEMS.iterdir()}
    versions = ", ".join(f'{name} = "{number}"' for name, number in stand.versions.items())
    text = _MATRIX.format(name=NAME, device=stand.device, gpu=stand.gpu, toolchain=stand.toolchain, versions=versions)
    for folder, chosen in ((ROOT / "problems", problems - own), (PROBLEMS, own)):
        if chosen:
            select = json.dumps(sorted(chosen))
            text += _PROBLEMS.format(folder=folder, select=select, workload=stand.workload)
    return text + stand.settings


def _installed(package: str, default: str = "0.0.0") -> str:
    """Its version here; for containers it need not be here."""
    try:
        return version(package).partition("+")[0]
    except PackageNotFoundError:
        return default
