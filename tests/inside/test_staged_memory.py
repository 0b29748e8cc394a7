"""Memory that two processes cannot share: a real worker behind buffers of its own, through the host's memory."""
# ruff: noqa: E402  # without torch this file is skipped before the code is imported

import socket
import threading
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from kernel_matrix.inside.judge import worker_client
from kernel_matrix.inside.judge.worker_client import WorkerClient
from kernel_matrix.inside.memory import StagedArena, create_shared_file, map_file
from kernel_matrix.inside.wire import MAX_FROM_JUDGE, MAX_FROM_WORKER, Channel
from kernel_matrix.inside.worker import service
from kernel_matrix.model.enums import Dtype, Stage
from kernel_matrix.model.messages import JudgeTimeouts
from kernel_matrix.platforms.cpu import inside as cpu
from tests.inside.sessions import CANDIDATE

pytestmark = pytest.mark.torch

LIKE = [torch.empty(4, device="meta")]
DOUBLES = "import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return x * 2\n"
MUTATES = "import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return x.add_(1) * 2\n"


def staged(host):
    return StagedArena(host, torch.zeros_like(host.tensor), lambda: None)


def open_staged(descriptor, nbytes):
    arena = staged(map_file(descriptor, nbytes))
    arena.fetch()
    return arena


PLATFORM = SimpleNamespace(**vars(cpu))
PLATFORM.create_arena = lambda nbytes: staged(map_file(create_shared_file(nbytes), nbytes))
PLATFORM.open_arena = open_staged


@pytest.fixture
def side(tmp_path, monkeypatch):
    """Starts a worker with a source, as a thread; the judge's side of it."""
    for module in (worker_client, service):
        monkeypatch.setattr(module, "load_platform", lambda _name: PLATFORM)
    ours, theirs = socket.socketpair()
    workers = []
    made = WorkerClient(CANDIDATE, Channel(ours, MAX_FROM_WORKER), "cpu", JudgeTimeouts())

    def started(source):
        (tmp_path / CANDIDATE.file).write_text(source)
        arguments = (Channel(theirs, MAX_FROM_JUDGE), tmp_path, "cpu")
        workers.append(threading.Thread(target=service.serve, args=arguments, daemon=True))
        workers[0].start()
        made.open()
        made.load({})
        made.construct(SimpleNamespace(init_arguments=[], state={}, dtype=Dtype.FP32), 0)
        return made

    yield started
    made.close()
    workers[0].join(60)
    ours.close()
    theirs.close()


def test_staged_outputs_reach_the_judge_on_every_call(side):
    worker = side(DOUBLES)
    for value in (1.0, 2.0):
        worker.deliver([torch.full((4,), value)], LIKE)
        result = worker.call(stage=Stage.VERIFY)
        assert result.outputs[0].tolist() == [2 * value] * 4
        assert result.damage == ""
        assert result.inputs[0].tolist() == [value] * 4


def test_staged_inputs_show_what_a_call_changed(side):
    worker = side(MUTATES)
    worker.deliver([torch.ones(4)], LIKE)
    assert worker.call(stage=Stage.VERIFY).inputs[0].tolist() == [2.0] * 4
