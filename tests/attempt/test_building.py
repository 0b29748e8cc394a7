"""Builders, as real processes, that deliver an artifact or misbehave."""

from __future__ import annotations

import tarfile
import threading

import pytest

from kernel_matrix.attempt import building
from kernel_matrix.attempt.building import BuildCancelledError, run_build
from kernel_matrix.attempt.role_specs import CellPlacement, builder_spec
from kernel_matrix.hosts.process_token import owner_token
from kernel_matrix.inside.build.builder import MAX_LOG
from kernel_matrix.inside.wire import MAX_FROM_JUDGE, Channel, FrameKind, KernelCode, pack_code
from kernel_matrix.model.enums import Fault, Stage, Status
from kernel_matrix.platforms import Gpu
from kernel_matrix.sandboxes import ProcessExit, ProcessLabels, open_sandbox
from tests.attempt.stage import FIRST, PlaySandbox, connected, hands_over, vanishes

COMPILES = """
import os
from pathlib import Path
folder = Path(os.environ["TORCH_EXTENSIONS_DIR"])
folder.mkdir()
(folder / "kernel.so").write_bytes(b"machine code")
"""
CUDA_GPU = Gpu(platform="cuda", uuid="GPU-0", name="absent")
"""Builders compile for a GPU without one."""
CHANNEL = "import gc\nchannel = next(t for t in gc.get_objects() if type(t).__name__ == 'Channel')\n"
"""Source code that finds the connection of the builder that runs it."""


@pytest.fixture(scope="module")
def sandbox():
    return open_sandbox("process")


@pytest.fixture
def build(stage, sandbox):
    """Builds a source in its own process; returns the build and the folder that it keeps artifacts in."""
    keep_in = stage.scratch / "kept"
    keep_in.mkdir()

    def built(source, sandbox=sandbox, *, timeout_s=30.0, cancelled=lambda: False, cell=None, order=b"", gpu=FIRST):
        cell = cell or stage.cell("built", source=source)
        labels = ProcessLabels(run_id="build-test", cell_id=cell.id, session=0, gpu_uuid="", owner=owner_token())
        place = CellPlacement(cell=cell, gpu=gpu, image=None, labels=labels)
        return run_build(
            sandbox,
            lambda code, channel: builder_spec(place, code, channel),
            cell.candidate.path.read_bytes(),
            order=order,
            keep_in=keep_in,
            timeout_s=timeout_s,
            max_bytes=1 << 20,
            cancelled=cancelled,
        )

    yield built
    left = [path for path in stage.scratch.rglob("*") if path.suffix != ".tar" and path != keep_in]
    assert left == []


def test_what_was_compiled_is_kept(build):
    made = build(COMPILES)
    assert made.outcome is None
    with tarfile.open(made.artifact) as archive:
        (kept,) = [member for member in archive if member.name.endswith("kernel.so")]
        assert archive.extractfile(kept).read() == b"machine code"
    assert made.artifact.stat().st_mode & 0o777 == 0o444
    assert [e.code for e in made.exits] == [0]
    assert made.seconds > 0


def test_what_asks_for_a_gpu_is_compiled_where_it_runs(build):
    made = build("raise RuntimeError('No CUDA GPUs are available')", gpu=CUDA_GPU)
    assert (made.artifact, made.outcome) == (None, None)


LACKS = "raise ModuleNotFoundError(\"No module named 'tilelang'\", name='tilelang')"


def test_build_missing_package_is_left_to_the_session(build, stage):
    made = build(LACKS)
    assert (made.artifact, made.outcome) == (None, None)
    assert made.log_tail.strip().endswith("No module named 'tilelang'")
    assert list(stage.scratch.rglob("*.tar")) == []


FAILURES = {
    "lacks what nobody knows": (
        "import no_such_package",
        Status.LOAD_ERROR,
        "ModuleNotFoundError: No module named 'no_such_package'",
    ),
    "does not compile, whatever it says": (
        "raise SyntaxError(\"\\nModuleNotFoundError: No module named 'tilelang'\")",
        Status.COMPILE_ERROR,
        "tilelang",
    ),
    "no Python": ("def broken(:\n", Status.COMPILE_ERROR, "SyntaxError"),
    "no C++": (
        (
            "said = 'kernel.cu(7): er' 'ror: expected a semicolon'\n"
            "raise RuntimeError('Error building extension: ' + said)"
        ),
        Status.COMPILE_ERROR,
        "kernel.cu(7): error: expected a semicolon",
    ),
    "raises": ("raise ValueError('no idea')", Status.LOAD_ERROR, "ValueError: no idea"),
    "too much for its memory": ("raise MemoryError", Status.OUT_OF_MEMORY, "MemoryError"),
    "leaves": ("import os\nprint('last words', flush=True)\nos._exit(3)", Status.CRASHED, "exit code 3"),
    "dies": ("import os\nos.kill(os.getpid(), 11)", Status.CRASHED, "SIGSEGV"),
    "hangs up and stays": (CHANNEL + "channel.close()\nimport time\ntime.sleep(60)", Status.CRASHED, "kept running"),
    "sends noise": (CHANNEL + "channel._socket.sendall(b'noise' * 100)", Status.PROTOCOL_VIOLATION, "magic"),
    "sends what a builder does not": (
        CHANNEL + "from kernel_matrix.inside.wire import FrameKind\nchannel.send(FrameKind.READY)",
        Status.PROTOCOL_VIOLATION,
        "READY",
    ),
    "sends too much": (
        CHANNEL + "from kernel_matrix.inside.wire import FrameKind\n"
        "for _ in range(99): channel.send(FrameKind.CHUNK, 0, bytes(65536))",
        Status.PROTOCOL_VIOLATION,
        "larger than 1 MiB",
    ),
    "announces too much": (
        CHANNEL + "import struct\nchannel._socket.sendall(struct.pack('<4sBxHIQ', b'KMX1', 20, 0, 2**32 - 1, 0))",
        Status.PROTOCOL_VIOLATION,
        "announces",
    ),
}


@pytest.mark.parametrize("name", FAILURES)
def test_every_other_end_is_an_outcome_with_evidence(name, build, stage, monkeypatch):
    source, status, words = FAILURES[name]
    if "kept running" in words:
        monkeypatch.setattr(building, "_LAST_MOMENTS_S", 0.5)
    made = build(source)
    assert made.artifact is None
    assert (made.outcome.status, made.outcome.stage) == (status, Stage.BUILD)
    assert made.outcome.fault is Fault.CANDIDATE
    assert words in made.outcome.evidence.message
    assert list(stage.scratch.rglob("*.tar")) == []


def test_the_last_words_are_evidence(build):
    assert "last words" in build(FAILURES["leaves"][0]).outcome.evidence.log


def test_a_builder_gets_no_more_time_than_its_limit(build):
    made = build("import time\ntime.sleep(60)", timeout_s=1.0)
    assert made.outcome.status is Status.TIMEOUT
    assert made.exits[0].killed


def test_a_builder_that_talks_for_ever_gets_no_more_time_either(build):
    dribbles = (
        "import struct, time\n"
        + CHANNEL
        + "channel._socket.sendall(struct.pack('<4sBxHIQ', b'KMX1', 20, 0, 1 << 20, 0))\n"
        + "while True:\n    channel._socket.sendall(b'.')\n    time.sleep(0.05)\n"
    )
    assert build(dribbles, timeout_s=1.0).outcome.status is Status.TIMEOUT


def test_a_build_is_called_off_while_it_compiles(build):
    asked = threading.Event()

    def cancelled():
        # True from the second query on: the first comes before the builder has begun.
        called_before = asked.is_set()
        asked.set()
        return called_before

    with pytest.raises(BuildCancelledError):
        build("import time\ntime.sleep(60)", cancelled=cancelled)


def test_a_builder_that_somebody_removes_is_the_machines_fault(build, stage):
    cell = stage.cell("lost", builder=[vanishes])
    outcome = build("", stage, cell=cell).outcome
    assert (outcome.status, outcome.fault) == (Status.CONTAINER_LOST, Fault.INFRA)


def test_a_builder_that_is_done_before_anybody_listens_is_heard(build, stage, monkeypatch):
    done = threading.Event()

    def quick(spec):
        end = hands_over(b"artefact")(spec)
        done.set()
        return end

    cell = stage.cell("quick", builder=[quick])
    launch = PlaySandbox.launch

    class Late:
        """Yields the process only when it has ended."""

        def __init__(self, spec):
            self._launched = launch(stage, spec)

        def __enter__(self):
            running = self._launched.__enter__()
            assert done.wait(20)
            assert running.wait(20) is not None
            return running

        def __exit__(self, *error):
            return self._launched.__exit__(*error)

    monkeypatch.setattr(stage, "launch", Late)
    assert build("", stage, cell=cell).artifact.read_bytes() == b"artefact"


TELLS = """
import os
from pathlib import Path
Path(os.environ["KERNEL_MATRIX_PTXAS_LOG"]).write_text("ptxas info    : Used 8 registers")
"""

KERNEL = KernelCode("scale", "9.0", 8, 0, 4, 256, 16, "ab" * 32)


def test_what_the_compiler_remarked_is_kept(build):
    made = build(COMPILES + TELLS, gpu=CUDA_GPU)
    assert (made.log_tail, made.kernels) == ("ptxas info    : Used 8 registers", ())


def speaks(*frames):
    """Make a builder that sends these frames."""

    def play(spec):
        with connected(spec) as connection:
            channel = Channel(connection, MAX_FROM_JUDGE)
            for kind, payload in frames:
                channel.send(kind, 0, payload)
        return ProcessExit(role=spec.role, code=0)

    return play


def test_what_is_said_of_kernels_is_kept(build, stage):
    said = speaks(
        (FrameKind.CHUNK, b"artefact"), (FrameKind.CODE, pack_code([KERNEL])), (FrameKind.DONE, b"remarks \xff")
    )
    made = build("", stage, cell=stage.cell("tells", builder=[said]))
    assert (made.kernels, made.log_tail) == ((KERNEL,), "remarks \ufffd")
    assert made.artifact.read_bytes() == b"artefact"


@pytest.mark.parametrize(
    "frames",
    [[(FrameKind.CODE, b"\xff\xff")], [(FrameKind.CODE, pack_code([KERNEL])[:-3])], [(FrameKind.CODE, b"")]],
    ids=["too many", "cut off", "empty"],
)
def test_kernels_that_no_builder_would_tell_of_are_refused(frames, build, stage):
    made = build("", stage, cell=stage.cell("lies", builder=[speaks((FrameKind.CHUNK, b"artefact"), *frames)]))
    assert (made.artifact, made.kernels) == (None, ())
    assert made.outcome.status is Status.PROTOCOL_VIOLATION


def test_an_endless_log_is_cut(build, stage):
    made = build("", stage, cell=stage.cell("talks", builder=[speaks((FrameKind.DONE, b"x" * 100_000 + b"end"))]))
    assert len(made.log_tail) == MAX_LOG
    assert made.log_tail.endswith("end")


def test_an_order_reaches_the_builder_first(build, stage):
    heard = []

    def listens(spec):
        with connected(spec) as connection:
            channel = Channel(connection, MAX_FROM_JUDGE)
            heard.append(channel.receive())
            channel.send(FrameKind.DONE)
        return ProcessExit(role=spec.role, code=0)

    build("", stage, cell=stage.cell("ordered", builder=[listens]), order=b"{}")
    assert heard == [(FrameKind.LOAD, 0, b"{}")]


def test_of_a_failed_build_only_the_useful_part_is_evidence(build):
    evidence = build(FAILURES["no C++"][0]).outcome.evidence
    assert evidence.message.endswith("kernel.cu(7): error: expected a semicolon")
    assert "Traceback" not in evidence.log
    assert "raise RuntimeError" in evidence.log  # who asked for it
