"""The builder: what a source compiled arrives as it was, and what went wrong is said in bounded words."""
# ruff: noqa: E402  # without torch this file is skipped before the core is imported

import io
import socket
import stat
import sys
import tarfile
import textwrap
import threading
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from runner.core.build import NEEDS_A_GPU, SOCKET_NAME, FrameWriter, build, main
from runner.core.wire import MAX_CHUNK, MAX_TEXT, Channel, Failure, Gone, Kind, WireError, unpack_failed
from runner.core.worker import _unpack_artifact

pytestmark = [
    pytest.mark.torch,
    # Later Pythons announce another default; what the builder sends is unpacked by the candidate's side alone.
    pytest.mark.filterwarnings("ignore:Python 3.14 will:DeprecationWarning"),
]


class Host:
    """The host's end: takes frames of at most ``MAX_CHUNK`` bytes until the builder has said its last word."""

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
        except (Gone, WireError) as ended:
            self.frames.append(ended)
        finally:
            self._channel.close()

    def done(self):
        """Kinds but chunks, and the bytes of all chunks, when the builder has closed its end."""
        self._thread.join(60)
        assert isinstance(self.frames.pop(), Gone), "the host refused a frame"
        rest = [(kind, payload) for kind, payload in self.frames if kind is not Kind.CHUNK]
        return rest, b"".join(payload for kind, payload in self.frames if kind is Kind.CHUNK)


@pytest.fixture
def built(tmp_path, monkeypatch):
    """Build a source in this process; its frames but chunks, and the artefact."""
    monkeypatch.setitem(sys.modules, "candidate", None)  # and out again afterwards
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "extensions"))

    def run(source):
        (tmp_path / "candidate.py").write_text(textwrap.dedent(source))
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        host, channel = Host(ours), Channel(theirs, MAX_CHUNK)
        try:
            build(channel, tmp_path, "candidate.py")
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
(folder / "kernel.so").chmod(0o755)
(folder / "build.ninja").write_text("rule cc")
(folder / "latest").symlink_to("kernel.so")
os.utime(folder / "kernel.so", ns=(7, 1_700_000_000_123_456_789))
os.utime(folder / "build.ninja", ns=(7, 1_700_000_000_000_000_001))
"""


@pytest.mark.parametrize("size", [100, 3 * MAX_CHUNK + 5], ids=["small", "several frames"])
def test_what_was_compiled_arrives_with_its_times_to_the_nanosecond(size, built, tmp_path, monkeypatch):
    frames, artifact = built(WRITES.format(size=size))
    assert frames == [(Kind.DONE, b"")]
    (tmp_path / "artifact.tar").write_bytes(artifact)
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "unpacked"))
    _unpack_artifact(tmp_path / "artifact.tar")
    made, seen = tmp_path / "extensions" / "kernel", tmp_path / "unpacked" / "kernel"
    assert (seen / "kernel.so").read_bytes() == (made / "kernel.so").read_bytes()
    assert stat.S_IMODE((seen / "kernel.so").stat().st_mode) == 0o755
    assert (seen / "latest").readlink() == Path("kernel.so")
    for name in ("kernel.so", "build.ninja", "."):
        assert (seen / name).stat().st_mtime_ns == (made / name).stat().st_mtime_ns


def test_a_source_that_compiles_nothing_sends_nothing(built):
    assert built("class ModelNew: pass") == ([(Kind.DONE, b"")], b"")


def test_an_empty_folder_is_an_archive_without_entries(built):
    frames, artifact = built("import os; os.makedirs(os.environ['TORCH_EXTENSIONS_DIR'])")
    assert frames == [(Kind.DONE, b"")]
    with tarfile.open(fileobj=io.BytesIO(artifact)) as archive:
        assert archive.getnames() == []


FAILURES = {
    "no Python": ("class ModelNew(:", Failure.COMPILE, "SyntaxError"),
    "no compiler likes it": (
        "raise RuntimeError(\"Error building extension 'k': k.cu(3): error: expected a ;\")",
        Failure.COMPILE,
        "expected a ;",
    ),
    "raises": ("raise ValueError('at import')", Failure.LOAD, "ValueError: at import"),
    "needs what is not there": ("import nothing_of_this_name", Failure.LOAD, "nothing_of_this_name"),
    "eats memory": ("raise MemoryError", Failure.MEMORY, "MemoryError"),
}


@pytest.mark.parametrize("name", FAILURES)
def test_what_went_wrong_is_told_with_its_traceback(name, built):
    source, failure, words = FAILURES[name]
    (((kind, payload),), artifact) = built(source)
    assert kind is Kind.FAILED
    assert artifact == b""
    told, text = unpack_failed(payload)
    assert told is failure
    assert words in text
    assert "candidate.py" in text


def test_of_an_endless_compiler_output_the_end_arrives(built):
    (((_, payload),), _) = built("raise ValueError('x' * 1_000_000 + ' at last')")
    assert unpack_failed(payload)[1].rstrip().endswith("at last")
    assert len(payload) <= MAX_TEXT + 1


@pytest.mark.parametrize("text", NEEDS_A_GPU)
def test_a_source_that_asks_for_the_device_is_compiled_where_it_runs(text, built):
    assert built(f"raise RuntimeError({text!r})") == ([(Kind.DONE, b"")], b"")


def test_a_source_that_ends_the_process_says_no_word(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "candidate", None)
    (tmp_path / "candidate.py").write_text("raise SystemExit(0)")
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    host, channel = Host(ours), Channel(theirs, MAX_CHUNK)
    with pytest.raises(SystemExit):
        build(channel, tmp_path, "candidate.py")
    channel.close()
    assert host.done() == ([], b"")


def test_no_frame_is_longer_than_the_host_takes():
    sent = []

    class Recorder:
        def send(self, kind, sequence, payload):
            sent.append((kind, sequence, len(payload)))

    assert FrameWriter(Recorder()).write(memoryview(bytes(2 * MAX_CHUNK + 1))) == 2 * MAX_CHUNK + 1
    assert sent == [(Kind.CHUNK, 0, MAX_CHUNK), (Kind.CHUNK, 0, MAX_CHUNK), (Kind.CHUNK, 0, 1)]


def test_the_builder_connects_builds_and_hangs_up(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "candidate", None)
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "extensions"))
    monkeypatch.chdir(tmp_path)  # socket paths are short
    (tmp_path / "mine.py").write_text("raise ValueError('mine')")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(SOCKET_NAME)
        listener.listen(1)
        assert main(["--channel", ".", "--code", str(tmp_path), "--file", "mine.py"]) == 0
        frames, _ = Host(listener.accept()[0]).done()
    assert "ValueError: mine" in unpack_failed(frames[0][1])[1]
