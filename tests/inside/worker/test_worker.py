"""The worker's process: connecting, importing, and leaving."""

import os
import socket
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from kernel_matrix.inside.artifact import PLACES, pack
from kernel_matrix.inside.wire import Channel, FrameKind
from kernel_matrix.inside.worker.worker import SOCKET_NAME, _import_ahead, main
from kernel_matrix.model.enums import Stage, Status
from tests.inside.sessions import CANDIDATE
from tests.inside.workers import TIMEOUTS, served

pytestmark = pytest.mark.torch

ROOT = Path(__file__).resolve().parents[3]
CODE = "import pathlib, sys\npathlib.Path('{seen}').write_text(str('json.tool' in sys.modules))\nModelNew = object\n"


@pytest.fixture
def judge(tmp_path):
    """A listening socket where a worker looks for its judge."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(tmp_path / SOCKET_NAME))
    listener.listen()
    listener.settimeout(60)
    yield listener
    listener.close()


def start(folder, *arguments):
    command = ("-m", "kernel_matrix.inside.worker.worker", "--channel", str(folder), "--code", str(folder), *arguments)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen((sys.executable, *command), env=environment, stderr=subprocess.PIPE)


def test_it_imports_ahead_and_nothing_of_its_source_until_told(judge, tmp_path):
    seen = tmp_path / "seen"
    (tmp_path / "candidate.py").write_text(CODE.format(seen=seen))
    process = start(tmp_path, "--preload", "json.tool", "--preload", "nothing_of_this_name")
    connection, _ = judge.accept()
    channel = Channel(connection, 1 << 16)
    channel.settimeout(60)
    channel.send_json(FrameKind.OPEN, {})
    assert channel.receive()[0] is FrameKind.READY
    assert not seen.exists()
    settings = {"file": "candidate.py", "entry": "ModelNew", "values": {}, "module": "candidate", "compile_mode": ""}
    channel.send_json(FrameKind.LOAD, settings)
    assert channel.receive()[0] is FrameKind.READY
    assert seen.read_text() == "True"
    channel.send(FrameKind.BYE)
    assert process.communicate(timeout=60)[1] == b""
    assert process.returncode == 0
    channel.close()


@pytest.mark.parametrize("place", ["triton.runtime.cache", "triton.compiler.compiler"])
def test_triton_hashes_its_files_ahead(place, monkeypatch):
    hashed = []
    for name in ("triton", "triton.runtime", "triton.runtime.cache", "triton.compiler", "triton.compiler.compiler"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    sys.modules[place].triton_key = lambda: hashed.append(place)
    _import_ahead(["triton"])
    assert hashed == [place]


def test_it_leaves_when_its_judge_does(judge, tmp_path):
    process = start(tmp_path)
    judge.accept()[0].close()
    assert process.communicate(timeout=60)[1] == b""
    assert process.returncode == 0


def test_a_judge_that_is_not_there_is_not_waited_for_for_ever(tmp_path):
    with pytest.raises(FileNotFoundError):
        main(["--channel", str(tmp_path), "--code", str(tmp_path), "--connect-timeout", "0.05"])


LOAD = {"file": "candidate.py", "entry": "ModelNew", "values": {}, "module": "candidate", "compile_mode": ""}


def test_artifact_brings_the_compilers_settings(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTORCH_NVCC", "")  # removed again afterwards
    unpacked = []
    monkeypatch.setattr("kernel_matrix.inside.worker.service.unpack", unpacked.append)
    platform = SimpleNamespace(compiler_settings=lambda: {"PYTORCH_NVCC": "the wrapper"}, open_device=lambda: None)
    monkeypatch.setattr("kernel_matrix.inside.worker.service.load_platform", lambda _name: platform)
    source = "import os\nassert os.environ['PYTORCH_NVCC'] == 'the wrapper'\nModelNew = object\n"
    (tmp_path / "candidate.py").write_text(source)
    platform.IS_ACCELERATOR = False
    with served(tmp_path, tmp_path / "artifact.tar") as channel:
        channel.send_json(FrameKind.OPEN, {})
        assert (channel.receive()[0], unpacked) == (FrameKind.READY, [])
        for _ in range(2):
            channel.send_json(FrameKind.LOAD, LOAD)
            assert channel.receive()[0] is FrameKind.READY
    assert unpacked == [tmp_path / "artifact.tar"]


@pytest.mark.parametrize("content", [b"no archive", b"", "cut"], ids=["garbage", "empty", "cut"])
def test_damaged_artifact_is_a_failed_load(content, tmp_path, monkeypatch):
    for name, setting in PLACES.items():
        monkeypatch.setenv(setting, str(tmp_path / "made" / name))
    (tmp_path / "made" / "triton").mkdir(parents=True)
    (tmp_path / "made" / "triton" / "kernel.cubin").write_bytes(bytes(5000))
    artifact = tmp_path / "artifact.tar"
    with artifact.open("wb") as file:
        pack(file)
    artifact.write_bytes(artifact.read_bytes()[:2000] if content == "cut" else content)
    for name, setting in PLACES.items():
        monkeypatch.setenv(setting, str(tmp_path / "seen" / name))
    (tmp_path / "candidate.py").write_text("ModelNew = object\n")
    from kernel_matrix.inside.judge.session_ended import SessionEnded  # noqa: PLC0415  # torch may be absent
    from kernel_matrix.inside.judge.worker_client import WorkerClient  # noqa: PLC0415

    with served(tmp_path, artifact) as channel:
        client = WorkerClient(CANDIDATE, channel, "cpu", TIMEOUTS)
        client.open()
        with pytest.raises(SessionEnded) as raised:
            client.load({})
    assert (raised.value.status, raised.value.stage) == (Status.LOAD_ERROR, Stage.LOAD)
    assert "ArtifactError: the candidate's compiled code cannot be unpacked: " in raised.value.evidence.message
