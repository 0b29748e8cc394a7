"""The builder: artifacts arrive unchanged, and failures are reported in bounded frames."""
# ruff: noqa: E402  # without torch this file is skipped before the core is imported

import io
import json
import socket
import sys
import tarfile
import textwrap
import threading

import pytest

torch = pytest.importorskip("torch")

from kernel_matrix.inside.build.builder import MAX_LOG, SOCKET_NAME, FrameWriter, build, main
from kernel_matrix.inside.platform import load_platform
from kernel_matrix.inside.wire import (
    MAX_CHUNK,
    MAX_TEXT,
    CallFailure,
    Channel,
    FrameKind,
    PeerGoneError,
    WireError,
    unpack_code,
    unpack_failed,
)

CUDA = load_platform("cuda")

pytestmark = [
    pytest.mark.torch,
    # Later Pythons announce another default; the builder's archive is only unpacked in the candidate's own container.
    pytest.mark.filterwarnings("ignore:Python 3.14 will:DeprecationWarning"),
]


class Host:
    """The host's end: reads frames of at most ``MAX_CHUNK`` bytes until the builder's last frame."""

    def __init__(self, connection):
        self.frames = []
        self._channel = Channel(connection, MAX_CHUNK)
        self._channel.settimeout(60)
        self._thread = threading.Thread(target=self._take)
        self._thread.start()

    def _take(self):
        try:
            while True:
                kind, _, payload = self._channel.receive()
                self.frames.append((kind, payload))
        except (PeerGoneError, WireError) as ended:
            self.frames.append(ended)
        finally:
            self._channel.close()

    def done(self):
        """Return kinds except chunks, and the bytes of all chunks, once the builder has closed its end."""
        self._thread.join(60)
        assert isinstance(self.frames.pop(), PeerGoneError), "the host refused a frame"
        rest = [(kind, payload) for kind, payload in self.frames if kind is not FrameKind.CHUNK]
        return rest, b"".join(payload for kind, payload in self.frames if kind is FrameKind.CHUNK)


@pytest.fixture(autouse=True)
def _settings(monkeypatch):
    """Restore the settings of this process that building changes."""
    for setting in ("PYTORCH_NVCC", "KERNEL_MATRIX_PTXAS_LOG", "TRITON_DUMP_PTXAS_LOG"):
        monkeypatch.setenv(setting, "")


@pytest.fixture
def built(tmp_path, monkeypatch):
    """Build a source in this process; return its frames except chunks, and the artifact."""
    monkeypatch.setitem(sys.modules, "candidate", None)  # restored afterwards
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "extensions"))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))

    def run(source, order=None):
        (tmp_path / "candidate.py").write_text(textwrap.dedent(source))
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        host, channel = Host(ours), Channel(theirs, MAX_CHUNK)
        try:
            if order is not None:
                Channel(ours, MAX_CHUNK).send(FrameKind.LOAD, 0, json.dumps(order).encode())
            build(channel, tmp_path / "candidate.py", CUDA, ahead=order is not None)
        finally:
            channel.close()
            frames = host.done()
        return frames

    return run


WRITES = """
import os
from pathlib import Path
folder = Path(os.environ["TORCH_EXTENSIONS_DIR"]) / "kernel"
folder.mkdir(parents=True)
(folder / "kernel.so").write_bytes(os.urandom({size}))
"""


@pytest.mark.parametrize("size", [100, 3 * MAX_CHUNK + 5], ids=["small", "several frames"])
def test_what_was_compiled_arrives(size, built, tmp_path):
    frames, artifact = built(WRITES.format(size=size))
    assert frames == [(FrameKind.DONE, b"")]
    with tarfile.open(fileobj=io.BytesIO(artifact)) as archive:
        handed = archive.extractfile("extensions/kernel/kernel.so").read()
    assert handed == (tmp_path / "extensions" / "kernel" / "kernel.so").read_bytes()


def test_a_source_that_compiles_nothing_sends_nothing(built):
    assert built("class ModelNew: pass") == ([(FrameKind.DONE, b"")], b"")


SAYS = """
import os
with open(os.environ["KERNEL_MATRIX_PTXAS_LOG"], "a") as log:
    log.write("x" * 10000 + "the end")
"""


def test_of_the_compilers_remarks_the_end_arrives(built):
    (((kind, payload),), _) = built(SAYS)
    assert kind is FrameKind.DONE
    assert len(payload) == MAX_LOG
    assert payload.endswith(b"the end")


PROBLEM = """
import torch
N = 1
class Model(torch.nn.Module): pass
def get_inputs(): return [torch.rand(N, 8)]
def get_init_inputs(): return []
"""

DOUBLES = """
import torch, triton, triton.language as tl

@triton.jit
def double_kernel(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)

class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        double_kernel[(x.numel() // 64,)](x, y, x.numel(), BLOCK=64)
        return y
"""


def order(problem=PROBLEM, *values):
    return {
        "problem": problem,
        "workloads": list(values) or [{"N": 1024}],
        "dtype": "fp32",
        "entry": "ModelNew",
        "target": {"arch": "9.0a"},
    }


def test_builder_compiles_triton_for_each_workload(built):
    frames, artifact = built(DOUBLES, order(PROBLEM, {"N": 1024}, {"N": 1000}, {"N": 1001}))
    kinds = [kind for kind, _ in frames]
    assert kinds == [FrameKind.CODE, FrameKind.DONE]
    kernels = unpack_code(frames[0][1])
    # 8000 and 8008 elements differ in no property that Triton compiles for.
    assert {(kernel.name, kernel.compute_capability) for kernel in kernels} == {("double_kernel", "9.0")}
    assert all(kernel.registers > 0 for kernel in kernels)
    assert b"Compiling entry function 'double_kernel' for 'sm_90a'" in frames[1][1]
    with tarfile.open(fileobj=io.BytesIO(artifact)) as archive:
        assert any(name.startswith("triton/") and name.endswith(".cubin") for name in archive.getnames())


def test_builder_inputs_need_values_compiles_nothing_ahead(built):
    (((kind, log),), artifact) = built(DOUBLES, order("N = 1\ndef get_inputs(): raise ValueError('no shapes')"))
    assert (kind, artifact) == (FrameKind.DONE, b"")
    assert log == b"the inputs could not be made without values: ValueError at line 2 of the problem\n"


WRITES_AROUND = """
import os, tempfile
N = 1
def get_init_inputs(): return []
def get_inputs():
    for folder in (tempfile.mkdtemp(), os.environ["TRITON_CACHE_DIR"], os.environ["TORCH_EXTENSIONS_DIR"]):
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, "notes"), "w") as file:
            file.write("of the problem")
    return []
"""


def test_builder_removes_files_that_the_problem_writes(built, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    frames, artifact = built("class ModelNew:\n    def __call__(self): pass", order(WRITES_AROUND))
    assert frames == [(FrameKind.DONE, b"")]
    assert artifact == b""
    assert list(tmp_path.rglob("notes")) == []


FAILURES = {
    "no Python": ("class ModelNew(:", CallFailure.COMPILE, "SyntaxError"),
    "no compiler likes it": (
        "raise RuntimeError(\"Error building extension 'k': k.cu(3): error: expected a ;\")",
        CallFailure.COMPILE,
        "expected a ;",
    ),
    "raises": ("raise ValueError('at import')", CallFailure.LOAD, "ValueError: at import"),
    "needs what is not there": ("import nothing_of_this_name", CallFailure.LOAD, "nothing_of_this_name"),
    "eats memory": ("raise MemoryError", CallFailure.MEMORY, "MemoryError"),
}


@pytest.mark.parametrize("name", FAILURES)
def test_what_went_wrong_is_told_with_its_traceback(name, built):
    source, failure, words = FAILURES[name]
    (((kind, payload),), artifact) = built(source)
    assert kind is FrameKind.FAILED
    assert artifact == b""
    told, text = unpack_failed(payload)
    assert told is failure
    assert words in text
    assert "candidate.py" in text


def test_of_an_endless_compiler_output_the_end_arrives(built):
    (((_, payload),), _) = built("raise ValueError('x' * 1_000_000 + ' at last')")
    assert unpack_failed(payload)[1].rstrip().endswith("at last")
    assert len(payload) <= MAX_TEXT + 1


@pytest.mark.parametrize("text", CUDA.NEEDS_DEVICE)
def test_builder_source_that_needs_device_sends_nothing(text, built):
    assert built(f"raise RuntimeError({text!r})") == ([(FrameKind.DONE, b"")], b"")


def test_a_source_that_ends_the_process_says_no_word(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "candidate", None)
    (tmp_path / "candidate.py").write_text("raise SystemExit(0)")
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    host, channel = Host(ours), Channel(theirs, MAX_CHUNK)
    with pytest.raises(SystemExit):
        build(channel, tmp_path / "candidate.py", CUDA)
    channel.close()
    assert host.done() == ([], b"")


def test_no_frame_is_longer_than_the_host_takes():
    sent = []

    class Recorder:
        def send(self, kind, sequence, payload):
            sent.append((kind, sequence, len(payload)))

    assert FrameWriter(Recorder()).write(memoryview(bytes(2 * MAX_CHUNK + 1))) == 2 * MAX_CHUNK + 1
    assert sent == [(FrameKind.CHUNK, 0, MAX_CHUNK), (FrameKind.CHUNK, 0, MAX_CHUNK), (FrameKind.CHUNK, 0, 1)]


def test_the_builder_steps_back_connects_builds_and_hangs_up(tmp_path, monkeypatch):
    stepped_back = []
    monkeypatch.setitem(sys.modules, "candidate", None)
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "extensions"))
    monkeypatch.chdir(tmp_path)  # socket paths are short
    monkeypatch.setattr(
        "kernel_matrix.inside.build.builder.os.nice", stepped_back.append
    )  # which this process could not take back
    (tmp_path / "mine.py").write_text("raise ValueError('mine')")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(SOCKET_NAME)
        listener.listen(1)
        assert main(["--channel", ".", "--code", str(tmp_path), "--file", "mine.py", "--device", "cuda"]) == 0
        frames, _ = Host(listener.accept()[0]).done()
    assert "ValueError: mine" in unpack_failed(frames[0][1])[1]
    assert stepped_back == [10]
